"""A process that claims its rank before a commit and loads until after it takes part as soon as it can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire import keys
from tests.support.peers import Run, all_ended, gradient_of, missing_only_in
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
