"""Replicas that die at each step of a round, and the effect on the others and on their reruns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from muster.replica.errors import FencedError, RendezvousError, StoppedError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import (
    SHARDED,
    Faults,
    Killed,
    Run,
    all_ended,
    kill_at,
    missing_only_in,
)
from tests.support.rendezvous_keys import of_round
from tests.support.waiting import wait_until

ROUND_2 = {
    "contribute": of_round(keys.CONTRIBUTIONS, 2),
    "commit": "commits/00000002",
    "reduce": of_round(keys.REDUCED, 2),
}


@pytest.mark.parametrize("step", list(ROUND_2))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_replica_is_replaced_and_all_end_with_the_same_bits(tmp_path: Path, step: str, when: str) -> None:
    run = Run(tmp_path, count=SHARDED)
    hook = kill_at(ROUND_2[step])
    faults = Faults(before_create=hook) if when == "before" else Faults(after_create=hook)
    victim = run.start(1, faults=faults)
    others = run.start_behind(victim, ROUND_2[step], 0, 2)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        successor = run.start(1, attempt=2)
        finals = {peer.parameters() for peer in (*others, successor)}
    assert finals == {run.replayed_by_hand()}


@pytest.mark.parametrize("step", list(ROUND_2))
def test_the_others_continue_without_a_killed_replica_when_a_quorum_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    # Its contribution from before its death counts, and no later one.
    gave = step != "contribute"
    missing_only_in(monkeypatch, 3 if gave else 2)
    run = Run(tmp_path, min_participants=2, count=SHARDED)
    victim = run.start(1, faults=Faults(before_create=kill_at(ROUND_2[step])))
    others = run.start_behind(victim, ROUND_2[step], 0, 2)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        finals = {peer.parameters() for peer in others}
    joiner = run.start(1, attempt=2)
    assert {joiner.parameters()} == finals
    assert joiner.outcomes == []
    last = 2 if gave else 1
    for round_ in range(1, run.rounds + 1):
        assert [member.rank for member in run.commit(round_).members] == ([0, 1, 2] if round_ <= last else [0, 2])


def test_the_shard_of_a_dead_owner_is_taken_over_with_the_same_bytes(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", rounds=1, count=SHARDED, min_participants=3)
    victim = run.start(1, faults=Faults(before_create=kill_at("reduced/")))
    others = run.start_behind(victim, "reduced/", 0, 2)
    with all_ended([victim, *others]):
        assert {peer.parameters() for peer in others} == {run.replayed_by_hand()}
        assert isinstance(victim.join().error, Killed)
    undisturbed = Run(tmp_path / "undisturbed", rounds=1, count=SHARDED)
    peers = undisturbed.start_all()
    with all_ended(peers):
        for peer in peers:
            peer.join()
    shards = sorted((undisturbed.root / "reduced").rglob("0*-*"))
    assert len(shards) == 3
    for shard in shards:
        # The headers name the members, with how long each has worked.
        values = [
            (root / shard.relative_to(undisturbed.root)).read_bytes()[HEADER_BYTES:]
            for root in (run.root, undisturbed.root)
        ]
        assert values[0] == values[1]


def test_a_process_that_is_superseded_while_it_waits_is_fenced(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    first = run.start(0)
    with all_ended([first]):
        wait_until("the contribution of rank 0", (run.root / keys.contribution(1, 0, 1)).exists)
        second = run.start(0, attempt=1)
        assert isinstance(first.join().error, FencedError)
        partner = run.start(1)
        with all_ended([second, partner]):
            assert second.parameters() == partner.parameters() == run.replayed_by_hand()
            assert second.rendezvous is not None
            assert second.rendezvous.incarnation == 2
    epochs = [
        member.epoch for round_ in range(1, run.rounds + 1) for member in run.commit(round_).members if not member.rank
    ]
    assert epochs == [2] * run.rounds, "what the superseded process gave was committed"


def test_an_older_attempt_that_starts_late_is_fenced_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    newer = run.start(0, attempt=3)
    with all_ended([newer]):
        wait_until("the claim of rank 0", (run.root / keys.claim(0, 1)).exists)
        assert isinstance(run.start(0, attempt=2).join().error, FencedError)
        assert newer.thread.is_alive()


def test_no_quorum_ends_with_a_reason_that_names_the_missing_ranks(tmp_path: Path) -> None:
    run = Run(tmp_path)
    peers = [run.start(0), run.start(1)]
    with all_ended(peers):
        wait_until("the contribution of rank 0", (run.root / keys.contribution(1, 0, 1)).exists)
        wait_until("the contribution of rank 1", (run.root / keys.contribution(1, 1, 1)).exists)
    # The others have contributed: the replica with the short time-out sees it, however slow the machine is.
    impatient = replace(run, timeout_seconds=0.5).start(0, attempt=2)
    assert isinstance(impatient.join().error, RendezvousError)
    assert "round 1 has 2 of at least 3 participants; missing: rank 2" in str(impatient.error)
    assert "0.5 s (rendezvous.timeout_seconds)" in str(impatient.error)


def test_a_replica_that_is_stopped_while_it_waits_returns_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    peer = run.start(0)
    wait_until("the contribution of rank 0", (run.root / keys.contribution(1, 0, 1)).exists)
    peer.stop.set()
    assert isinstance(peer.join().error, StoppedError)


def test_a_run_that_died_altogether_in_mid_round_continues_where_it_was(tmp_path: Path) -> None:
    run = Run(tmp_path, count=SHARDED)
    victims = [run.start(rank, faults=Faults(before_create=kill_at(of_round(keys.REDUCED, 3)))) for rank in range(3)]
    for victim in victims:
        assert isinstance(victim.join().error, Killed)
    peers = [run.start(rank, attempt=2) for rank in range(3)]
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
