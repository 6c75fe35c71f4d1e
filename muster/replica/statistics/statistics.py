"""The statistics of one process: what its trainer logs and expects, how far it has come, where its time goes."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.contract.run.commit import Commit, Resumed
from muster.contract.run.round_values import ROUND_MAX, UNIT, UPDATE_COSINE
from muster.replica.replica_errors import ParametersError
from muster.replica.statistics.metrics import Metrics
from muster.replica.statistics.progress import Progress
from muster.replica.statistics.time_account import TimeAccount

_UPDATES_MAX = 32


@dataclass(frozen=True)
class Notes:
    """What a replica says about itself with a contribution.

    Attributes:
        metrics: the latest value of each.
        logged: for each of them, by name, how many rounds before it was logged.
        time: milliseconds by activity since the contribution before.
        resumed: the stored inner state with which its process has begun.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    logged: tuple[int, ...] = ()
    time: tuple[int, ...] = ()
    resumed: Resumed | None = None


@dataclass(frozen=True)
class OwnUpdate:
    """What a replica has contributed to a round: its norm (`Member.norm`), and its cosine with the others, if known.

    Attributes:
        pulls: how far each member of the round moves the mean, by rank, as shares (`update_sample.pulls`).
    """

    round: int
    norm: float | None
    cosine: float | None
    pulls: Mapping[int, float] = field(default_factory=dict)


class Statistics:
    """What the rounds carry beside values, and what the page and the watch look at. No round depends on it."""

    def __init__(self, metrics: Metrics, now: Callable[[], float] = time.monotonic) -> None:
        """The latest value of each of the `metrics` is sent with every contribution. `now`: a monotonic clock's."""
        self.metrics = metrics
        self.progress = Progress(now)
        self.times = TimeAccount(now)
        self.rounds: int | None = None
        """How many rounds the trainer expects in all; None: it has not said."""
        self.unit: str | None = None
        """What the trainer's samples are; None: it has not said."""
        self.resumed: Resumed | None = None
        """The stored inner state with which this process has begun, if it is none of a round."""
        self.updates: deque[OwnUpdate] = deque(maxlen=_UPDATES_MAX)
        """Those of the last rounds, oldest first."""

    def expect(self, rounds: int | None, unit: str | None) -> None:
        """What the trainer says about its training; None leaves as it is what was said before.

        Raises:
            ParametersError: a number of rounds or a unit that is not allowed.
        """
        problems = []
        if rounds is not None and (
            isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= ROUND_MAX
        ):
            problems.append(f"rounds is {rounds!r}; allowed: 1 to {ROUND_MAX:,}, the rounds of the whole run")
        if unit is not None and (not isinstance(unit, str) or re.fullmatch(UNIT, unit) is None):
            problems.append(f"unit is {unit!r}; allowed: at most 20 lower-case letters, such as tokens")
        if problems:
            message = f"What the trainer expects is invalid: {'; '.join(problems)}."
            raise ParametersError(message)
        self.rounds, self.unit = rounds or self.rounds, unit or self.unit

    def notes(self, round_: int) -> Notes:
        """What is sent with the contribution to `round_`; the time is that since the last call."""
        return Notes(*self.metrics.sent(round_), self.times.take(), self.resumed)

    def note_update(
        self, round_: int, metrics: Mapping[str, float], norm: float | None, pulls: Mapping[int, float]
    ) -> None:
        """Log the metrics of what was contributed to a round; `norm`: as in `Member`."""
        self.updates.append(OwnUpdate(round_, norm, metrics.get(UPDATE_COSINE), pulls))
        self.metrics.log_round(round_, metrics)

    def show_pace(self, rank: int, commit: Commit) -> None:
        """Log the rates of the replica and of the run, as `tokens_per_second` and `run_tokens_per_second`."""
        if commit.pace is None:
            return
        own = commit.pace.by_rank[rank] if rank < len(commit.pace.by_rank) else None
        rates = {} if own is None else {f"{commit.unit}_per_second": own}
        self.metrics.show({**rates, f"run_{commit.unit}_per_second": commit.pace.samples_per_second})
