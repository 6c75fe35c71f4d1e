"""How replicas train together: when they exchange what, and how they apply the result. Pure; the same on all replicas.

| algorithm | settings |
|---|---|
| DiLoCo (arXiv 2311.08105) | `sync_every` |
| local SGD: plain averaging (arXiv 1805.09767) | `learning_rate=1, momentum=0` |
| Streaming DiLoCo (arXiv 2501.18512) | `fragments`, `delay`, `alpha` |
| eager updates (arXiv 2502.12996) | `eager` |
| radial and directional averages, RDA (arXiv 2604.21428) | `average="rda"` |
| SparseLoCo (arXiv 2508.15706) | `codec="topk2-64", feedback_decay=0.95, learning_rate=1, momentum=0` |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from muster.contract.spec.algorithm_settings import SETTINGS, allowed_instead
from muster.replica.algorithms.outer_optimizer import RUN_ELEMENTS, Nesterov
from muster.replica.codecs import codec_named
from muster.replica.replica_errors import AlgorithmError
from muster.replica.wire.binary_format import Floats


class Action(Enum):
    """What to do after an inner step."""

    NOTHING = auto()
    GIVE = auto()
    MERGE = auto()
    GIVE_AND_MERGE = auto()


_RANGES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "sync_every": ("1 or more inner steps", lambda value: value >= 1),
    "fragments": ("1 or more", lambda value: value >= 1),
    "learning_rate": ("a number above 0", lambda value: 0 < value < np.inf),
    "momentum": ("from 0 to below 1", lambda value: 0 <= value < 1),
    "alpha": ("from 0 to below 1", lambda value: 0 <= value < 1),
    "delay": ("0 or more inner steps", lambda value: value >= 0),
    "decay_rounds": ("0 or more rounds", lambda value: value >= 0),
    "final_learning_rate": ("a number from 0", lambda value: 0 <= value < np.inf),
    "momentum_rounds": ("0 or more rounds", lambda value: value >= 0),
    "restart_rounds": ("0 or more rounds", lambda value: value >= 0),
    "feedback_decay": ("above 0 to 1", lambda value: 0 < value <= 1),
    "average": ("mean, rda", lambda value: value in {"mean", "rda"}),
    "clip_norm": ("a number from 0", lambda value: 0 <= value < np.inf),
    "outlier_factor": ("0, or a number from 2", lambda value: value == 0 or 2 <= value < np.inf),
}


@dataclass(frozen=True)
class Algorithm:
    """How a run trains: DiLoCo by default. All replicas of a run use the same settings.

        Algorithm(sync_every=500)                                   # DiLoCo
        Algorithm(sync_every=500, fragments=4, delay=5, alpha=0.5)  # Streaming DiLoCo
        Algorithm(sync_every=500, codec="int4")                     # 4 bits per value instead of 32

    Raises:
        AlgorithmError: lists every setting that is invalid, with what is allowed.
    """

    sync_every: int = 1
    """Inner steps between two exchanges of the same parameter (H in the papers); a multiple of `fragments`."""

    learning_rate: float = 0.7
    """Learning rate of the outer Nesterov optimizer, above 0."""

    momentum: float = 0.9
    """Momentum of the outer Nesterov optimizer, from 0 to below 1."""

    fragments: int = 1
    """Number of parts into which the parameters are cut; one is exchanged every `sync_every / fragments` steps."""

    delay: int = 0
    """Inner steps between sending a pseudo-gradient and merging the result (τ), below `sync_every / fragments`."""

    alpha: float = 0.0
    """Share of the local parameters when the global ones are merged, from 0 (none) to below 1."""

    eager: bool = False
    """Exchange during the whole next inner phase, which starts from an estimate of the exchange's outcome."""

    codec: str = "fp32"
    """Encoding of the values: fp32, bf16, fp16, int8, int4 or topk2-K.

    Codecs other than fp32 use error feedback, which takes twice as much memory as the parameters. Statistics such as
    BatchNorm's are sent as float32 whatever the codec.
    """

    far_codec: str = ""
    """Encoding of what crosses from one place to another, in a run over several places; empty: `codec`.

    What is lost there is not made up for by error feedback, so it cannot be topk2-K.
    """

    average: str = "mean"
    """How pseudo-gradients are averaged: `mean`; or `rda`, norms and directions apart, but not with topk2-K."""

    decay_rounds: int = 0
    """Rounds over which the outer learning rate falls linearly to `final_learning_rate`; 0: it stays the same.

    With `fragments`, this and the two settings of the momentum count the rounds of each fragment: so many exchanges of
    the same parameters.
    """

    final_learning_rate: float = 0.0
    """The outer learning rate after `decay_rounds` rounds, 0 or more; only with `decay_rounds`."""

    momentum_rounds: int = 0
    """Rounds over which the outer momentum rises linearly from 0 to `momentum`; 0: it is the same from the start."""

    restart_rounds: int = 0
    """The outer momentum begins at 0 again every so many rounds; 0: never."""

    feedback_decay: float = 1.0
    """Share of what a codec has lost that is added to the next contribution, above 0 to 1; SparseLoCo has 0.95."""

    clip_norm: float = 0.0
    """Largest L2 norm of a replica's pseudo-gradient of a round: a larger one is scaled down; 0: no limit."""

    outlier_factor: float = 0.0
    """A contribution whose norm is more than so many times the round's median is excluded; 0: none is."""

    def __post_init__(self) -> None:
        problems = self._unusable() or self._contradictions()
        if problems:
            raise AlgorithmError("The algorithm's settings are invalid: " + "; ".join(problems) + ".")

    def _unusable(self) -> list[str]:
        """The settings that are not allowed whatever the others are."""
        values = {name: getattr(self, name) for name in SETTINGS}
        allowed = {name: allowed_instead(name, value) for name, value in values.items()}
        for name, (words, is_allowed) in _RANGES.items():
            if allowed[name] is None and not is_allowed(values[name]):
                allowed[name] = words
        return [f"{name} is {values[name]!r}; allowed: {words}" for name, words in allowed.items() if words]

    def _contradictions(self) -> list[str]:
        problems = []
        if self.sync_every % self.fragments:
            problems.append(f"sync_every is {self.sync_every}; allowed: a multiple of the {self.fragments} fragments")
        elif self.delay >= self.interval:
            problems.append(f"delay is {self.delay}; allowed: below {self.interval}, the steps between two exchanges")
        for name, codec in {"codec": self.codec, "far_codec": self.far_codec or "fp32"}.items():
            try:
                found = codec_named(codec)
            except ValueError as error:
                problems.append(str(error).rstrip(".").replace("codec is", f"{name} is"))
            else:
                if name == "far_codec" and found.needs_feedback:
                    problems.append(f"far_codec is {codec}; allowed: a codec that keeps every value, such as int4")
                elif self.is_radial and found.needs_feedback:
                    reason = "rda scales the mean, and error feedback needs it as it was sent"
                    problems.append(f"average is 'rda'; allowed with codec {codec}: mean, because {reason}")
        if self.feedback_decay != 1 and self.codec == "fp32":
            problems.append("feedback_decay is set, and fp32 loses nothing: choose another codec or leave it out")
        if self.final_learning_rate and not self.decay_rounds:
            problems.append("final_learning_rate is set without decay_rounds: set both, or leave it out")
        if self.eager and (self.fragments, self.delay, self.alpha) != (1, 0, 0.0):
            problems.append("eager cannot be combined with fragments, delay or alpha")
        return problems

    @property
    def interval(self) -> int:
        """Inner steps from one exchange to the next, of any fragment."""
        return self.sync_every // self.fragments

    @property
    def given_after(self) -> int:
        """Inner steps from a merge to the next give."""
        return self.interval - self.delay

    @property
    def is_radial(self) -> bool:
        """Whether norms and directions are averaged apart."""
        return self.average == "rda"

    @property
    def outer(self) -> Nesterov:
        """The outer optimizer, which applies the means."""
        return Nesterov(
            self.learning_rate,
            self.momentum,
            self.decay_rounds,
            self.final_learning_rate,
            self.momentum_rounds,
            self.restart_rounds,
        )

    def action_after(self, steps: int) -> Action:
        """What to do after the `steps`-th inner step since the last exchange was merged."""
        give, merge = steps == self.given_after, steps == self.interval
        if give and merge:
            return Action.GIVE_AND_MERGE
        if give:
            return Action.GIVE
        return Action.MERGE if merge else Action.NOTHING


def norm_of(squares: Iterable[float]) -> float:
    """The L2 norm of a pseudo-gradient, from the sums of squares of its parts; the order does not matter."""
    return math.sqrt(math.fsum(squares))


def square_of(values: Floats) -> float:
    """The sum of the squares, in double precision."""
    runs = (values[start : start + RUN_ELEMENTS] for start in range(0, values.size, RUN_ELEMENTS))
    return math.fsum(float(np.square(run, dtype=np.float64).sum()) for run in runs)


def mixed(local: Floats, shared: Floats, alpha: float) -> Floats:
    """A fragment's parameters after merging: the share α of the local ones, the rest of the global ones."""
    if alpha == 0:
        return shared
    return shared + np.float32(alpha) * (local - shared)


def eager_estimate(own: Floats, previous: tuple[Floats, Floats, float] | None) -> Floats:
    """An estimate of a round's mean while it is exchanged: the last mean, with this replica's part replaced.

    Args:
        own: the pseudo-gradient just sent.
        previous: the last round's mean, this replica's contribution to it, and its share of the weight; None before
            the first round.
    """
    if previous is None:
        return own
    mean, given, share = previous
    return mean + np.float32(share) * (own - given)
