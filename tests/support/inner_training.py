"""A replica that trains alone. Every inner step depends on all before it: one that is repeated or left out shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.options.tiers.replica.inner_states import Counts, InnerStates
from muster.options.tiers.replica.tier import TierName
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.front_end import DiLoCoFrontEnd
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.transport import Store
from tests.support.peers import PATIENT_SECONDS, Run

STEPS = 25  # of a phase
ALGORITHM = Algorithm(sync_every=STEPS, learning_rate=0.7, momentum=0.9)


class Momentum:
    """An inner optimizer with a state that is as large as the parameters, and the position in the data."""

    def __init__(self, count: int) -> None:
        self.position, self.velocity = 0, np.zeros(count, np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "velocity": self.velocity}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.position = state_dict["position"]
        self.velocity = state_dict["velocity"].copy()

    def move(self, parameters: np.ndarray[Any, Any]) -> int:
        """One inner step; returns the number of the item that it has used."""
        item = np.float32(np.sin(1.0 + self.position))
        self.velocity = np.float32(0.9) * self.velocity + np.float32(0.1) * (parameters - item)
        parameters -= np.float32(0.05) * self.velocity
        self.position += 1
        return self.position - 1


@dataclass
class Lives:
    """The processes of one replica, one after another: what survives them is below `root`.

    Attributes:
        tiers: the spec's `checkpoints`.
        has_disk: whether there is a local disk.
        checkpoint_dir: the trainer's folder; None: it saves nothing itself.
    """

    root: Path
    tiers: CheckpointTiers | None = field(default_factory=lambda: CheckpointTiers(memory_every=10, s3_every=20))
    algorithm: Algorithm = ALGORITHM
    count: int = 50
    has_disk: bool = True
    keeps_own_state: bool = True
    store: Store | None = None

    @property
    def run(self) -> Run:
        return Run(self.root / "run", replicas=1, min_participants=1)

    @property
    def disk(self) -> Path:
        return self.root / "disk"

    def begin(self, attempt: int = 1) -> Life:
        return Life(self, attempt)


class Life:
    """One process. It ends without a trace: nothing is called at its end."""

    def __init__(self, lives: Lives, attempt: int) -> None:
        outside = Outside(checkpoints=lives.tiers, local_states=lives.disk if lives.has_disk else None)
        self.rendezvous = Rendezvous.open(lives.run.context(lives.store), 0, attempt, Metrics(), outside)
        self.parameters = np.linspace(-1, 1, lives.count, dtype=np.float32)
        self.optimizer = Momentum(lives.count)
        self.outer = DiLoCo(
            self.rendezvous,
            self.parameters,
            lives.algorithm,
            trainer_state={"optimizer": self.optimizer},
            checkpoint_dir=lives.root / "checkpoints" if lives.keeps_own_state else None,
        )
        self.used: list[int] = []

    @property
    def place(self) -> tuple[int, int]:
        """The round and the inner step in which the process is."""
        return self.outer.round, self.outer.steps

    @property
    def tier(self) -> str | None:
        """From where it has continued."""
        resumed = self.rendezvous.statistics.resumed
        return None if resumed is None else resumed.tier

    @property
    def counts(self) -> Mapping[TierName, Counts]:
        """What became of the states, by tier."""
        assert isinstance(self.outer._tiers, InnerStates)
        return self.outer._tiers.counts

    def train(self, steps: int, *, saves: bool = True) -> Life:
        """So many inner steps; the states are written after each, unless `saves` is False."""
        for _ in range(steps):
            self.used.append(self.optimizer.move(self.parameters))
            self.outer.step()
            if saves:
                self.saved()
        return self

    def saved(self) -> None:
        """Wait until nothing is being written."""
        inner_states_written(self.outer)

    @property
    def bits(self) -> bytes:
        """All that the training depends on."""
        return self.parameters.tobytes() + self.optimizer.velocity.tobytes()


def inner_states_written(front_end: DiLoCoFrontEnd) -> None:
    """Wait until no inner state of a training is being written."""
    states = front_end._tiers
    assert not isinstance(states, InnerStates) or states.wait(PATIENT_SECONDS)


def undisturbed(root: Path, steps: int, algorithm: Algorithm = ALGORITHM, count: int = 50) -> bytes:
    """What a process has after so many steps that was never disturbed, and saves nothing."""
    lives = Lives(root / "undisturbed", None, algorithm, count)
    return lives.begin().train(steps).bits
