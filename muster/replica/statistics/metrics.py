"""Metrics: printed to standard output, where SageMaker's regular expressions find them, and handed to who listens.

The last values are kept: they are sent with contributions.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from muster.contract.run.round_values import METRICS_MAX as SENT_MAX
from muster.contract.run.round_values import UPDATE_METRICS
from muster.contract.spec.metric_sinks import METRIC_NAME, METRIC_NAME_WORDS

# Logged by the front ends in every round.
UTILISATION = "utilisation"
NOT_OWN = {UTILISATION, *UPDATE_METRICS}
# The trainer's own; with the utilisation they are the 32 that a contribution's header has. Muster's others take the
# places that are left.
METRICS_MAX = 31
NAME = re.compile(METRIC_NAME)
LISTENING = "metrics-of-"
"""How the names of the threads of listeners begin."""


class Ending(Enum):
    """How the process of the replica ends."""

    DONE = auto()
    FAILED = auto()
    STOPPED = auto()


class Listener(Protocol):
    """Gets what is logged in the training loop, which does not wait: what takes time is for a thread of its own."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take what was logged at once; `step`: the run's inner step, or its round where a front end knows no steps."""

    def close(self, ending: Ending) -> None:
        """Nothing is logged any more: what still waits is written, for some seconds at most."""


def has_hanging_listeners() -> bool:
    """Whether a thread of a listener has not ended although it is closed."""
    return any(thread.name.startswith(LISTENING) for thread in threading.enumerate())


class Metrics:
    """The trainer's metrics, and the utilisation of each round (see `Stopwatch`)."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        """`listeners` get everything that is logged."""
        self.ending = Ending.FAILED
        """How the process ends, as far as is known."""
        self.step = 0
        """The run's inner steps so far, or its rounds where a front end knows no steps: the front end sets it."""
        self.round = 0
        """The round that is logged now: until the next inner step the one before, then that of the phase. The front end
        sets it."""
        self._listeners = listeners
        self._latest: dict[str, float] = {}
        self._last: dict[str, float] = {}  # NaN and infinity included
        self._rounds: dict[str, int] = {}
        self._lock = threading.Lock()

    def log(self, **values: float) -> None:
        """Print `name=value name=value …` as one line and keep the latest value of each name.

        NaN and infinity are printed but not kept: contributions carry finite numbers only.

        Raises:
            ValueError: an invalid name, or more than METRICS_MAX names.
        """
        self.log_round(self.round, values)

    def log_round(self, round_: int, values: Mapping[str, float]) -> None:
        """As `log`, for a round."""
        numbers = {name: float(value) for name, value in values.items()}
        for name in numbers:
            if NAME.fullmatch(name) is None:
                message = f"{name!r} is not a metric name; allowed: at most 48 {METRIC_NAME_WORDS}"
                raise ValueError(message)
        with self._lock:
            kept = {name: value for name, value in numbers.items() if math.isfinite(value)}
            if len({*self._latest, *kept} - NOT_OWN) > METRICS_MAX:
                message = f"a trainer can log at most {METRICS_MAX} metrics; log fewer names"
                raise ValueError(message)
            self._latest.update(kept)
            self._rounds.update(dict.fromkeys(kept, round_))
            self._last.update(numbers)
        self.show(numbers)

    def show(self, numbers: Mapping[str, float]) -> None:
        """Print and hand over numbers that are not sent with contributions."""
        print(" ".join(f"{name}={value:.6g}" for name, value in numbers.items()), flush=True)
        for listener in self._listeners:
            listener.write(self.step, numbers)

    def close(self) -> None:
        """Nothing is logged any more."""
        for listener in self._listeners:
            listener.close(self.ending)

    def latest(self) -> dict[str, float]:
        """The latest value of each name, of at most as many as are sent."""
        with self._lock:
            left_out = UPDATE_METRICS[max(0, SENT_MAX - len(self._latest.keys() - {*UPDATE_METRICS})) :]
            return {name: value for name, value in self._latest.items() if name not in left_out}

    def sent(self, round_: int) -> tuple[dict[str, float], tuple[int, ...]]:
        """The latest value of each name; and for each, by name, how many rounds before `round_` it was logged."""
        sent = self.latest()
        with self._lock:
            return sent, tuple(max(0, round_ - self._rounds[name]) for name in sorted(sent))

    def last(self, name: str) -> float | None:
        """The value that was logged last, also if it is NaN or infinite; None if none was."""
        with self._lock:
            return self._last.get(name)
