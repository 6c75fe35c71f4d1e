"""A process that claims its rank before a commit and loads until after it takes part as soon as it can."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.wire import keys
from tests.support.peers import PATIENT_SECONDS, Run, all_ended, gradient_of, missing_only_in, returns_before
from tests.support.waiting import wait_until


def test_a_process_whose_claim_an_earlier_round_has_seen_is_read_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 1)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=2)
    # Rank 1 has claimed its rank and loads. Round 1 knows of it, and does not have it.
    rendezvous = Rendezvous.open(run.context(), 1, 1, Metrics())

    def after_the_joiner(round_: int) -> None:
        if round_ == 2:
            wait_until("the contribution", (run.root / keys.contribution(2, 1, 1)).exists)

    other = run.start(0, before_step=after_the_joiner)
    with all_ended([other]):
        wait_until("the first commit", (run.root / keys.commit(1)).exists)
        first = run.commit(1)
        assert (first.absent, first.epochs) == ((1,), (1, 1))
        parameters = np.zeros(run.count, np.float32)
        joined = DiLoCo(rendezvous, parameters)
        parameters -= gradient_of(1, 2, run.count)
        outcome = joined.step(2)
        assert other.parameters() == parameters.tobytes()
    assert outcome is not None
    assert outcome.participants == (0, 1)


def test_a_process_that_loads_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A wait in round 3 or 4 would last as long as the test may.
    missing_only_in(monkeypatch, 2)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=5)
    gives = threading.Event()

    def loaded(round_: int) -> None:
        if round_ == 3:
            # It claims its rank after the second commit, which does not have it.
            rendezvous.append(Rendezvous.open(run.context(), 1, 2, Metrics()))
        if round_ == 5:
            DiLoCo(rendezvous[0], np.zeros(run.count, np.float32))
            gives.set()

    rendezvous: list[Rendezvous] = []
    first = run.start(1, before_step=returns_before(2))
    other = run.start(0, before_step=loaded)
    with all_ended([first, other]):
        # Once it has loaded, the last round waits for it.
        assert gives.wait(PATIENT_SECONDS)
        assert [run.commit(round_).absent for round_ in (2, 3, 4)] == [(1,), (), ()]
        update = LocalUpdate(gradient_of(1, 5, run.count), 2.0)
        training = rendezvous[0].training
        assert isinstance(training, ReplicatedState)
        assert training.advance(update) is not None
        assert other.parameters() == training.state.parameters.tobytes()
    assert [member.rank for member in run.commit(5).members] == [0, 1]
