"""How far data may go, and what housekeeping does when the store refuses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.rounds.reduced_shards import shards_for
from muster.replica.rounds.retention import Keeper, horizon
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import StoreDeniedError
from muster.replica.wire import keys
from tests.support.peers import Faults, FaultyStore, Run, all_ended


def commit(
    named: Sequence[int],
    excluded: Sequence[int] = (),
    epochs: Sequence[int] = (1, 1, 1),
    round_: int = 9,
    count: int = 1,
) -> Commit:
    return Commit(
        run="r",
        round=round_,
        committed_at="",
        count=count,
        members=tuple(
            Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8) for rank in named
        ),
        excluded=tuple(Exclusion(rank=rank, reason="NaN") for rank in excluded),
        epochs=tuple(epochs),
    )


@pytest.mark.parametrize(
    ("round_", "complete", "expected"),
    [
        (commit([0, 1, 2]), [8, 4], 8),
        (commit([0, 1, 2]), [], 0),
        (commit([0, 1], excluded=[2]), [8, 4], 8),
        # A rank that never came holds nothing; one that came and is not named holds an interval.
        (commit([0, 1], epochs=(1, 1, 0)), [8, 4], 8),
        (commit([0, 1]), [8, 4], 4),
        (commit([0, 1]), [8], 0),
    ],
)
def test_data_go_up_to_a_snapshot_that_everybody_has_passed(round_: Commit, complete: list[int], expected: int) -> None:
    assert horizon(round_, complete) == expected


class Undeletable(FaultyStore):
    """A store whose role may not delete."""

    def delete(self, keys: Sequence[str]) -> None:
        raise StoreDeniedError(keys[0], "AccessDenied")


class FrugalRun(Run):
    """A run whose replicas may not delete."""

    @property
    def store(self) -> Undeletable:
        return Undeletable(LocalStore(self.root), Faults())


def test_a_role_that_may_not_delete_trains_on_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = FrugalRun(tmp_path, rounds=5, snapshot_rounds=1)
    with caplog.at_level(logging.WARNING, "muster.replica"):
        peers = run.start_all()
        with all_ended(peers):
            assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    assert "event=not-swept" in caplog.text
    assert (tmp_path / keys.contribution(1, 0, 1)).exists()


class Counting(FaultyStore):
    """A store that counts who lists what."""

    def __init__(self, root: Path, listed: Counter[str]) -> None:
        super().__init__(LocalStore(root), Faults())
        self._listed = listed

    def keys(self, folder: str, stop: str) -> list[str]:
        self._listed[stop] += 1
        return super().keys(folder, stop)


def test_members_share_the_sweep(tmp_path: Path) -> None:
    listed: Counter[str] = Counter()

    class CountedRun(Run):
        @property
        def store(self) -> Counting:
            return Counting(self.root, listed)

    run = CountedRun(tmp_path, rounds=8, snapshot_rounds=2)
    peers = run.start_all()
    with all_ended(peers):
        for peer in peers:
            peer.join()
    # With all members in step each place is listed once for each horizon, by the member it is assigned to.
    assert {listed[keys.before(keys.contributions_of(rank), round_)] for rank in range(3) for round_ in (3, 5)} == {1}
    assert not (tmp_path / keys.contribution(4, 0, 1)).exists()


@dataclass(frozen=True)
class StateOfEveryRound:
    """States of one object each, as torchft's algorithms have them."""

    context: RoundContext

    def rounds(self, last: int) -> range:
        return range(last, 0, -1)

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        return True

    def shards(self, round_: int) -> int:
        return 1

    def folder(self, shard: int) -> str:
        return keys.torchft_states_of(shard)


LARGE, SMALL = 355_000_000, 8_000_000  # parameters


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ([[0, 1, 2, 3]] * 6, [LARGE]),
        # Two members make more shards than four: they are as large as possible, and their number is a multiple.
        ([[0, 1, 2, 3], [0, 1], *[[0, 1, 2, 3]] * 4], [LARGE]),
        # The sweep that covers the rounds of a large fragment may come with the commit of a small one.
        ([[0, 1, 2, 3]] * 6, [LARGE, SMALL]),
    ],
    ids=["all", "two of four", "fragments"],
)
def test_a_sweep_covers_all_shards_of_a_large_model(
    tmp_path: Path, members: list[list[int]], counts: list[int]
) -> None:
    run = Run(tmp_path, replicas=4)
    context = run.context()
    keepers = [Keeper(StateOfEveryRound(context), rank) for rank in range(4)]
    most = 0
    for round_, ranks in enumerate(members, 1):
        done = commit(ranks, epochs=[1] * 4, round_=round_, count=counts[(round_ - 1) % len(counts)])
        shards = shards_for(done.count, context.codec, done.members)
        most = max(most, shards)
        for shard in range(shards):
            run.store.create(keys.reduced(round_, 0, shard), b"")
        for rank in ranks:
            keepers[rank].keep(done)
    assert most > 4 * 4
    left = {int(path.name[:8]) for path in (tmp_path / keys.REDUCED).rglob("0*-000")}
    assert left == {len(members)}
