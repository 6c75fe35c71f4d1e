"""Stragglers, joiners, late and duplicate objects."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from muster.replica.rounds.claims import Claim
from muster.replica.rounds.contribution import Notes, contribute, make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.wire import keys
from tests.support.peers import (
    PATIENT_SECONDS,
    Faults,
    Killed,
    Peer,
    Run,
    all_ended,
    gradient_of,
    kill_at,
    missing_only_in,
)
from tests.support.rendezvous_keys import of_round, round_of
from tests.support.waiting import wait_until


def test_a_joiner_that_comes_after_the_end_only_replays(tmp_path: Path) -> None:
    run = Run(tmp_path, rounds=23)
    peers = run.start_all()
    with all_ended(peers):
        finals = {peer.parameters() for peer in peers}
    joiner = run.start(2, attempt=2)
    assert {joiner.parameters()} == finals == {run.replayed_by_hand()}
    assert joiner.outcomes == []


def test_a_joiner_begins_at_the_last_stored_state(tmp_path: Path) -> None:
    run = Run(tmp_path, rounds=23, snapshot_rounds=10)
    peers = run.start_all()
    with all_ended(peers):
        finals = {peer.parameters() for peer in peers}
    read: list[str] = []
    joiner = run.start(0, attempt=2, faults=Faults(before_read=read.append))
    assert {joiner.parameters()} == finals
    assert keys.manifest(20) in read
    assert not [key for key in read if key.startswith(keys.REDUCED) and round_of(key) <= 20]


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
            wait_until("the claim of the new attempt", (run.root / keys.claim(2, 2)).exists)

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
    gives = of_round(keys.CONTRIBUTIONS, 2)
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
