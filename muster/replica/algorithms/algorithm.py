"""How replicas train together: when they exchange what, and what they do with it. Pure; the same for all replicas.

| algorithm | what to set |
|---|---|
| DiLoCo (arXiv 2311.08105) | `sync_every` |
| local SGD: plain averaging (arXiv 1805.09767) | `learning_rate=1, momentum=0` |
| Streaming DiLoCo (arXiv 2501.18512) | `fragments`, `delay`, `alpha` |
| eager updates (arXiv 2502.12996) | `eager` |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from muster.replica.algorithms.outer_optimizer import Nesterov, Outer
from muster.replica.codecs import codec_named
from muster.replica.errors import AlgorithmError
from muster.replica.wire.binary_format import Floats


class Turn(Enum):
    """What is to be done after an inner step."""

    NOTHING = auto()
    GIVE = auto()
    MERGE = auto()
    GIVE_AND_MERGE = auto()


@dataclass(frozen=True)
class Algorithm:
    """The settings of a run's training.

    Attributes:
        sync_every: inner steps between two exchanges of the same parameter (H).
        learning_rate: of the outer Nesterov optimizer.
        momentum: of the outer Nesterov optimizer.
        fragments: into how many parts the parameters are cut; one is exchanged every `sync_every / fragments` steps.
        delay: inner steps that go on between giving a pseudo-gradient and taking over what came of it (τ).
        alpha: the share of the local parameters when the global ones are taken over (0: none).
        eager: exchange during the whole next inner phase, which begins from an estimate of the exchange's outcome.
        codec: what the values are exchanged in: fp32, bf16, fp16, int8, int4 or topk2-K, all that lose something with
            error feedback (which takes as much memory as the parameters).
    """

    sync_every: int = 1
    learning_rate: float = 0.7
    momentum: float = 0.9
    fragments: int = 1
    delay: int = 0
    alpha: float = 0.0
    eager: bool = False
    codec: str = "fp32"

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise AlgorithmError("This is no way to train: " + "; ".join(problems) + ".")

    def _problems(self) -> list[str]:
        checks = {
            f"sync_every is {self.sync_every}, not a positive number of inner steps": self.sync_every >= 1,
            f"fragments is {self.fragments}, not a positive number": self.fragments >= 1,
            f"learning_rate is {self.learning_rate}, not a positive number": 0 < self.learning_rate < np.inf,
            f"momentum is {self.momentum}, not from 0 to below 1": 0 <= self.momentum < 1,
            f"alpha is {self.alpha}, not from 0 to below 1": 0 <= self.alpha < 1,
            f"delay is {self.delay}, not from 0 inner steps": self.delay >= 0,
        }
        problems = [problem for problem, passed in checks.items() if not passed]
        if problems:
            return problems
        if self.sync_every % self.fragments:
            problems.append(f"sync_every is {self.sync_every}, not a multiple of the {self.fragments} fragments")
        elif self.delay >= self.interval:
            problems.append(f"delay is {self.delay}, not below the {self.interval} inner steps between two exchanges")
        try:
            codec_named(self.codec)
        except ValueError as error:
            problems.append(str(error).rstrip("."))
        if self.eager and (self.fragments, self.delay, self.alpha) != (1, 0, 0.0):
            problems.append("eager goes without fragments, delay and alpha")
        return problems

    @property
    def interval(self) -> int:
        """Inner steps from one exchange to the next, of whichever fragment."""
        return self.sync_every // self.fragments

    @property
    def outer(self) -> Outer:
        """What is done with the means."""
        return Outer(Nesterov(self.learning_rate, self.momentum), self.fragments)

    def turn(self, steps: int) -> Turn:
        """What follows the `steps`-th inner step since the last exchange was merged."""
        give, merge = steps == self.interval - self.delay, steps == self.interval
        if give and merge:
            return Turn.GIVE_AND_MERGE
        if give:
            return Turn.GIVE
        return Turn.MERGE if merge else Turn.NOTHING


def mixed(local: Floats, shared: Floats, alpha: float) -> Floats:
    """The parameters after a fragment was taken over: α of the local ones, the rest of the global ones."""
    if alpha == 0:
        return shared
    return shared + np.float32(alpha) * (local - shared)


def eager_estimate(own: Floats, previous: tuple[Floats, Floats, float] | None) -> Floats:
    """What a round's mean may come to, while it is exchanged: the last mean with one's own part in it renewed.

    Args:
        own: the pseudo-gradient just given.
        previous: the last round's mean, what this replica gave to it, and its weight's share in it; None before any.
    """
    if previous is None:
        return own
    mean, given, share = previous
    return mean + np.float32(share) * (own - given)
