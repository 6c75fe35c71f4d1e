"""A phase with NaN in it costs its replica one round: what the trainer's own optimizer holds is restored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire.binary_format import Floats
from tests.support.peers import Run, together

ROUNDS = 6
POISONED = 3  # the phase in which rank 1 meets a batch of NaN


class Momentum:
    """An inner optimizer: it never forgets a NaN."""

    def __init__(self, count: int) -> None:
        self.average = np.zeros(count, np.float32)

    def moved(self, gradient: Floats) -> Floats:
        self.average = np.float32(0.9) * self.average + gradient
        return self.average

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.average = state_dict["average"].copy()


class Reader:
    """Hands out the numbers of the batches."""

    def __init__(self) -> None:
        self.drawn = 0
        self.best = np.array(np.inf, np.float32)

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.drawn, self.best = int(state_dict["drawn"]), state_dict["best"]


def train(
    rendezvous: Rendezvous, folder: Path | None, algorithm: Algorithm, *, poisoned: int = POISONED, until: int = ROUNDS
) -> tuple[dict[int, tuple[int, ...]], Momentum, Reader]:
    """The participants of each round, and what the replica holds at the end."""
    parameters = np.zeros(10, np.float32)
    optimizer, reader = Momentum(10), Reader()
    outer = DiLoCo(
        rendezvous,
        parameters,
        algorithm,
        trainer_state={"optimizer": optimizer, "reader": reader},
        checkpoint_dir=None if folder is None else folder / f"rank-{rendezvous.rank}",
    )
    participants = {}
    while outer.round < until:
        batch = reader.draw()
        is_poisoned = rendezvous.rank == 1 and batch == (poisoned - 1) * algorithm.sync_every + 1
        gradient = np.full(10, np.nan if is_poisoned else 1.0, np.float32)
        parameters -= optimizer.moved(gradient)
        outcome = outer.step()
        if outcome is not None:
            participants[outcome.round] = outcome.participants
    if (outcome := outer.finish()) is not None:
        participants[outcome.round] = outcome.participants
    return participants, optimizer, reader


@pytest.mark.parametrize("is_saved", [True, False], ids=["saved", "not saved"])
@pytest.mark.parametrize("poisoned", [1, POISONED])
@pytest.mark.parametrize(
    "algorithm", [Algorithm(), Algorithm(sync_every=2, delay=1, alpha=0.5)], ids=["at once", "delayed"]
)
def test_a_batch_of_nan_costs_one_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, poisoned: int, is_saved: bool, algorithm: Algorithm
) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    folder = tmp_path if is_saved else None
    caplog.set_level(logging.WARNING, "muster.replica")
    (_, (participants, optimizer, reader)) = together(
        run, lambda rendezvous: train(rendezvous, folder, algorithm, poisoned=poisoned)
    )
    assert participants == {round_: (0,) if round_ == poisoned else (0, 1) for round_ in range(1, ROUNDS + 1)}
    assert np.isfinite(optimizer.average).all()
    # The data position was sound: no batch is drawn again, and the one with NaN is not met twice.
    assert reader.drawn == ROUNDS * algorithm.sync_every - algorithm.delay
    healed = [record.getMessage() for record in caplog.records if "event=healed" in record.getMessage()]
    assert len(healed) == 1
    assert "part=trainer_state['optimizer'] state_of_round=" in healed[0]


def test_a_rerun_does_not_get_the_nan_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)

    def work(rendezvous: Rendezvous) -> Any:
        return train(rendezvous, tmp_path, Algorithm(), until=POISONED)

    together(run, work)
    (_, (participants, optimizer, reader)) = together(run, work, attempt=2)
    assert participants == {}
    # As after the round before, whose batches counted.
    assert np.isfinite(optimizer.average).all()
    assert reader.drawn == POISONED - 1
