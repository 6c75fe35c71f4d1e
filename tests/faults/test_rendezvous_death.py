"""Replicas that die at each step of a round, or are late, and the effect on the others and on their reruns."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from muster.replica.replica_errors import FencedError, RendezvousError, StoppedError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.contribution import contribute, make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.statistics.statistics import Notes
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import (
    PATIENT_SECONDS,
    SHARDED,
    Faults,
    Killed,
    Peer,
    Run,
    all_ended,
    dead_are_replaced_soon,
    gradient_of,
    kill_at,
    missing_only_in,
)
from tests.support.rendezvous_keys import of_round
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    dead_are_replaced_soon(monkeypatch)


def test_the_others_continue_without_a_killed_replica_when_a_quorum_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {
        "contribute": of_round(rendezvous_keys.CONTRIBUTIONS, 2),
        "commit": "commits/00000002",
        "reduce": of_round(rendezvous_keys.REDUCED, 2),
    }
    for step, created in steps.items():
        # Its contribution from before its death counts, and no later one.
        last = 1 if step == "contribute" else 2
        missing_only_in(monkeypatch, last + 1)
        run = Run(tmp_path / step, min_participants=2)
        victim = run.start(1, faults=Faults(before_create=kill_at(created)))
        others = run.start_behind(victim, created, 0, 2)
        with all_ended([victim, *others]):
            assert isinstance(victim.join().error, Killed)
            finals = {peer.parameters() for peer in others}
        joiner = run.start(1, attempt=2)
        assert {joiner.parameters()} == finals, step
        assert joiner.outcomes == []
        members = [[member.rank for member in run.commit(round_).members] for round_ in range(1, run.rounds + 1)]
        assert members == [[0, 1, 2]] * last + [[0, 2]] * (run.rounds - last), step


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
        # It has looked at its claim once, and at whom the round still misses.
        wait_until(
            "rank 0 to wait", lambda: first.rendezvous is not None and first.rendezvous.statistics.progress.missing
        )
        second = run.start(0, attempt=1)
        assert isinstance(first.join().error, FencedError)
        partner = run.start(1)
        with all_ended([second, partner]):
            assert second.parameters() == partner.parameters() == run.replayed_by_hand()
            assert second.rendezvous is not None
            assert second.rendezvous.seat.claim.incarnation == 2
    epochs = [
        member.epoch for round_ in range(1, run.rounds + 1) for member in run.commit(round_).members if not member.rank
    ]
    assert epochs == [2] * run.rounds, "what the superseded process gave was committed"


def test_an_older_attempt_that_starts_late_is_fenced_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    newer = run.start(0, attempt=3)
    with all_ended([newer]):
        wait_until("the claim of rank 0", (run.root / rendezvous_keys.claim(0, 1)).exists)
        assert isinstance(run.start(0, attempt=2).join().error, FencedError)
        assert newer.thread.is_alive()


def test_no_quorum_ends_with_a_reason_that_names_the_missing_ranks(tmp_path: Path) -> None:
    run = Run(tmp_path)
    peers = [run.start(0), run.start(1)]
    with all_ended(peers):
        wait_until("the contribution of rank 0", (run.root / rendezvous_keys.contribution(1, 0, 1)).exists)
        wait_until("the contribution of rank 1", (run.root / rendezvous_keys.contribution(1, 1, 1)).exists)
    # The others have contributed: the replica with the short time-out sees it, however slow the machine is.
    impatient = replace(run, timeout_seconds=0.5).start(0, attempt=2)
    assert isinstance(impatient.join().error, RendezvousError)
    assert "round 1 has 2 of at least 3 participants; missing: rank 2" in str(impatient.error)
    assert "0.5 s (rendezvous.timeout_seconds)" in str(impatient.error)


def test_a_replica_that_is_stopped_while_it_waits_returns_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    peer = run.start(0)
    wait_until("the contribution of rank 0", (run.root / rendezvous_keys.contribution(1, 0, 1)).exists)
    peer.stop.set()
    assert isinstance(peer.join().error, StoppedError)


def test_a_run_that_died_altogether_in_mid_round_continues_where_it_was(tmp_path: Path) -> None:
    run = Run(tmp_path, count=SHARDED)
    victims = [
        run.start(rank, faults=Faults(before_create=kill_at(of_round(rendezvous_keys.REDUCED, 3)))) for rank in range(3)
    ]
    for victim in victims:
        assert isinstance(victim.join().error, Killed)
    peers = [run.start(rank, attempt=2) for rank in range(3)]
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}


def test_a_straggler_is_left_out_catches_up_and_is_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, min_participants=2, rounds=5)
    gate = threading.Event()

    def late_for_round_2(round_: int) -> None:
        if round_ == 2:
            gate.wait(PATIENT_SECONDS)

    def wait_for_straggler(round_: int) -> None:
        if round_ == 3:
            gate.set()
            # It rejoins by a second claim.
            wait_until("the claim of the new attempt", (run.root / rendezvous_keys.claim(2, 2)).exists)

    straggler = run.start(2, before_step=late_for_round_2)
    others = [run.start(rank, before_step=wait_for_straggler) for rank in (0, 1)]
    with all_ended([straggler, *others]):
        finals = {peer.parameters() for peer in (straggler, *others)}
        took_part = {outcome.round: outcome.took_part for outcome in straggler.outcomes}
    assert len(finals) == 1
    assert took_part == {1: True, 2: False, 3: True, 4: True, 5: True}
    assert [member.rank for member in run.commit(2).members] == [0, 1]
    assert finals == {run.replayed_by_hand(lambda round_: [0, 1] if round_ == 2 else [0, 1, 2])}


def dead_in_round_2(run: Run) -> tuple[Peer, list[Peer]]:
    """Rank 2, which dies before it contributes to round 2, and the others, which contribute afterwards."""
    gives = of_round(rendezvous_keys.CONTRIBUTIONS, 2)
    victim = run.start(2, faults=Faults(before_create=kill_at(gives)))
    return victim, run.start_behind(victim, gives, 0, 1)


def test_a_dead_replica_costs_the_grace_window_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Waiting for it a second time would take longer than this test may.
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, min_participants=2, rounds=12, timeout_seconds=2 * PATIENT_SECONDS)
    victim, others = dead_in_round_2(run)
    with all_ended([victim, *others]):
        for peer in others:
            peer.parameters()
    assert [run.commit(round_).absent for round_ in range(1, 13)] == [(), (2,)] + [()] * 10


def test_late_and_duplicate_contributions_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, min_participants=2)
    victim, others = dead_in_round_2(run)
    with all_ended([victim, *others]):
        finals = {peer.parameters() for peer in others}
        assert isinstance(victim.join().error, Killed)
    before = run.commit(2)
    late = make_contribution(
        run.context(), Claim(2, 1, 1, 1), 2, LocalUpdate(gradient_of(2, 2, run.count), 3.0), Notes()
    )
    contribute(run.context(), late)
    contribute(run.context(), late)
    joiner = run.start(2, attempt=2)
    assert {joiner.parameters()} == finals
    assert run.commit(2) == before
