"""How the mean of a model that is large for its members is made: in several shards for each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from muster.replica.rounds import agreement
from muster.replica.rounds.reduced_shards import ReducedShards
from muster.replica.rounds.reduction import _Reduction, reduced_mean
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire import blocks, keys
from tests.support.peers import SHARDED, Faults, FaultyStore, Killed, Run, all_ended
from tests.support.rendezvous_keys import is_like, of_round

SHARDS = 6  # two for each of three members


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(blocks, "SHARD_BYTES_AIM", 4 * SHARDED // SHARDS)
    return Run(tmp_path, count=SHARDED, rounds=2)


def test_members_make_several_shards_of_a_large_model(run: Run) -> None:
    peers = run.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    assert len(list(run.root.glob(of_round(keys.REDUCED, 2) + "*"))) == SHARDS


def test_an_owner_that_dies_between_its_shards_is_stood_in_for(run: Run) -> None:
    made: list[str] = []

    def die_at_the_second(key: str) -> None:
        if is_like(key, of_round(keys.REDUCED, 2)):
            made.append(key)
            if len(made) == 2:
                raise Killed(key)

    victim = run.start(1, faults=Faults(before_create=die_at_the_second))
    others = run.start_behind(victim, of_round(keys.REDUCED, 2), 0, 2)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        assert {peer.parameters() for peer in others} == {run.replayed_by_hand()}
    assert len(list(run.root.glob(of_round(keys.REDUCED, 2) + "*"))) == SHARDS


def test_a_mean_is_divided_as_its_commit_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A commit of an older version does not say it: then one shard for each member.
    monkeypatch.setattr(agreement, "shards_for", lambda *_: None)
    peers = run.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    assert len(list(run.root.glob(of_round(keys.REDUCED, 2) + "*"))) == SHARDS // 2


def test_a_shard_that_is_not_there_yet_is_looked_for_again_while_others_are_read(run: Run) -> None:
    peers = run.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    looks: Counter[str] = Counter()
    again = threading.Event()

    def late(key: str) -> None:
        looks[key] += 1
        if is_like(key, keys.reduced(2, 0, 1)):
            if looks[key] == 1:
                raise ObjectMissingError(key)
            again.set()
        if is_like(key, keys.reduced(2, 0, 0)):
            assert again.wait(10)

    context = run.context(FaultyStore(run.store, Faults(before_read=late)))
    _, mean = reduced_mean(context, run.commit(2), None, context.polling())
    assert np.array_equal(mean, reduced_mean(run.context(), run.commit(2), None, context.polling())[1])
    assert again.is_set()


def test_shards_that_are_not_there_leave_the_connections_to_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member has died behind its contribution: a third of the shards is missing until another takes them over."""
    monkeypatch.setattr(blocks, "SHARD_BYTES_AIM", 1)
    monkeypatch.setattr(blocks, "SHARD_BYTES_MIN", 1)
    run = Run(tmp_path, count=SHARDED * 8, rounds=1)
    peers = run.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    commit = run.commit(1)
    shards = ReducedShards(run.context(), commit).number
    assert shards > 2 * blocks.CONNECTIONS
    gone = {keys.reduced(1, 0, shard) for shard in range(0, shards, 3)}
    together, met = threading.Barrier(blocks.CONNECTIONS), threading.Event()

    def look(key: str) -> None:
        if key in gone:
            raise ObjectMissingError(key)
        if key.startswith(keys.REDUCED) and not met.is_set():
            with suppress(threading.BrokenBarrierError):
                together.wait(5)
                met.set()

    context = run.context(FaultyStore(run.store, Faults(before_read=look)))
    reduction = _Reduction(context, commit, None, None)
    missing = reduction._read_all(list(range(shards)))
    assert {keys.reduced(1, 0, shard) for shard in missing} == gone
    assert met.is_set(), "as many are read at once as there are connections"


def test_what_is_read_side_by_side_is_over_before_its_failure_is_raised(run: Run) -> None:
    context = run.context()
    fails, running, over = threading.Event(), threading.Event(), threading.Event()

    def read(item: str) -> None:
        if item == "fails":
            assert running.wait(30)
            fails.set()
            raise ValueError(item)
        running.set()
        assert fails.wait(30)
        # Long after its neighbour has failed it still writes into a buffer of the round's.
        time.sleep(0.2)
        over.set()

    with pytest.raises(ValueError, match="fails"):
        context.side_by_side(read, ["fails", "runs"])
    assert over.is_set()
