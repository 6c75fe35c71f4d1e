"""Where the time of a run's replicas went, and the sentences that say it. Pure.

What a job waits for is in its statuses; what its program does is in the commits of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pydantic import Field

from muster.contract.aws.job_status import BEFORE_INSTANCE
from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit
from muster.contract.run.seat_states import SeatsView
from muster.contract.run.time_use import TIME_MAX, Activity, TimeUse, seconds_of
from muster.contract.timestamps import Timestamp, seconds_between
from muster.report.figures import clock

_LAUNCHING = {*BEFORE_INSTANCE, "Interrupted", "Restarting"}
_STARTING = {"Downloading", "DownloadingTrainingImage"}
_SAVING = {"Uploading", "Stopping"}
_ENDS = {"Completed", "Failed", "Stopped"}
_SHARE_MIN = 0.01
"""A smaller share of the time is not mentioned."""
_NAMED_MIN = 0.4
"""A replica that caused at least so much of the waiting is named."""
_LAUNCH_NAMED_MIN = 0.05
"""A replica that waited for its instance for so much of the run is named."""


class TimeSplit(Document):
    """Seconds of all replicas together, from the start of the run until each has ended, or until now."""

    launching: float = Field(default=0.0, description="waited for capacity, for quota, for a rerun or for other runs")
    starting: float = Field(default=0.0, description="downloaded the image and the data")
    training: float = 0.0
    waiting: float = Field(default=0.0, description="waited for the contributions of other replicas")
    exchanging: float = Field(default=0.0, description="uploaded, downloaded and merged contributions")
    saving: float = Field(default=0.0, description="wrote checkpoints, snapshots and the model")
    loading: float = Field(default=0.0, description="loaded the model and the state of the run")
    other: float = Field(
        default=0.0, description="in the job, but counted by no round: the start and end of the program, lost work"
    )
    rounds: int = Field(default=0, description="how many rounds say what the time was spent on")
    slowest: int | None = Field(default=None, description="the rank for which the others waited longest")
    slowest_rounds: int = Field(default=0, description="in how many rounds they waited for it")
    slowest_seconds: float = Field(default=0.0, description="for how long they did, all together")
    longest_launch: float = Field(default=0.0, description="the longest that one replica was `launching`")
    longest_launch_rank: int | None = None
    replicas: int = 0

    @property
    def total(self) -> float:
        """All of it."""
        inside = self.training + self.waiting + self.exchanging + self.saving + self.loading + self.other
        return self.launching + self.starting + inside


def measured(commit: Commit, replicas: int) -> TimeUse | None:
    """The time use of a run with so many replicas until the commit of a round, the round's own waiting included.

    Its members say only with the next round how long they have waited in this one. Until then the arrival of their
    contributions does, which S3 dates in whole seconds.
    """
    use = None if commit.time_use is None else commit.time_use.of_replicas(replicas)
    if use is None or not commit.arrivals:
        return use
    seconds = sum(commit.arrivals[-1] - one for one in commit.arrivals)
    # Replicas write the arrivals: they may be any numbers, NaN and infinity included.
    waited = round(1000 * seconds) if 0 <= seconds <= TIME_MAX / 1000 else 0
    index = list(Activity).index(Activity.WAITING)
    spent = [*use.spent, *[0] * (index + 1 - len(use.spent))]
    spent[index] += waited
    held_up = list(use.held_up)
    if waited and commit.waited_for is not None and commit.waited_for < replicas:
        held_up += [0] * (commit.waited_for + 1 - len(held_up))
        held_up[commit.waited_for] += waited
    return use.model_copy(update={"spent": tuple(spent), "held_up": tuple(held_up)})


def summed(uses: Iterable[TimeUse | None]) -> TimeUse | None:
    """What all replicas have spent their time on; None where none says it."""
    known = [use for use in uses if use is not None]
    if not known:
        return None
    length = max(len(use.spent) for use in known)
    spent = [sum(use.spent[index] for use in known if index < len(use.spent)) for index in range(length)]
    return TimeUse(rounds=max(use.rounds for use in known), spent=tuple(spent))


def time_split(
    replicas: Mapping[int, Sequence[Attempt]],
    use: TimeUse | None,
    span: tuple[Timestamp, Timestamp],
    *,
    ended: bool,
    seats: SeatsView | None = None,
) -> TimeSplit:
    """The split of the replicas' time: their attempts by rank, and what their contributions say.

    Args:
        span: when the run started, and when it ended, or now.
        ended: whether it has; otherwise a replica without a job waits for one.
        seats: of an elastic run: a seat that is parked waits for nothing.
    """
    jobs = {
        rank: _job_seconds(attempts, *span, ended=ended, parked=partial(seats.parked_seconds, rank) if seats else None)
        for rank, attempts in replicas.items()
    }
    sums = {kind: sum(one[kind] for one in jobs.values()) for kind in _KINDS}
    spent = seconds_of(use.spent) if use else {}
    inside = sum(spent.values())
    # Commits that say more than the jobs have lasted are of other clocks, or are wrong.
    scale = min(1.0, sums["running"] / inside) if inside else 0.0
    shares = {kind.value: value * scale for kind, value in spent.items()}
    shares["saving"] = shares.get("saving", 0.0) + sums["saving"]
    rank, slowest_seconds = _longest(use.held_up if use else ())
    waits = {one: found["launching"] for one, found in jobs.items()}
    launch = max(waits, key=lambda one: (waits[one], -one), default=None)
    return TimeSplit(
        launching=sums["launching"],
        starting=sums["starting"],
        other=max(0.0, sums["running"] - inside * scale),
        rounds=use.rounds if use else 0,
        slowest=rank,
        slowest_rounds=use.last[rank] if use and rank is not None and rank < len(use.last) else 0,
        slowest_seconds=slowest_seconds * scale / 1000,
        longest_launch=0.0 if launch is None else waits[launch],
        longest_launch_rank=launch if launch is not None and waits[launch] else None,
        replicas=len(replicas),
        **shares,
    )


_KINDS = ("launching", "starting", "running", "saving")


def _job_seconds(
    attempts: Sequence[Attempt],
    begin: str,
    until: str,
    *,
    ended: bool,
    parked: Callable[[str, str], float] | None,
) -> dict[str, float]:
    seconds = dict.fromkeys(_KINDS, 0.0)
    for kind, before, after in _steps(attempts, begin, until, ended=ended):
        try:
            length = seconds_between(before, after)
            length -= parked(before, after) if parked is not None and kind == "launching" and length > 0 else 0.0
            seconds[kind] += max(0.0, length)
        except (ValueError, TypeError):
            continue  # SageMaker's times are not trusted
    return seconds


def _steps(attempts: Sequence[Attempt], begin: str, until: str, *, ended: bool) -> Iterator[tuple[str, str, str]]:
    """What a replica did, from when until when."""
    at, is_done = begin, False
    for attempt in attempts:
        launched, end = attempt.launched_at or at, attempt.ended_at or until
        yield "launching", at, launched
        at = end
        is_done = attempt.ended_at is None or attempt.status == "Completed"
        if not attempt.was_created:
            yield "launching", launched, end
            is_done = False
            continue
        steps = [step for step in attempt.history if step.secondary not in _ENDS]
        name = "Starting" if steps else "Training" if attempt.ended_at else attempt.secondary or "Starting"
        before = launched
        for step in steps:
            yield _kind(name), before, step.at
            before, name = max(before, step.at), step.secondary
        yield _kind(name), before, end
    if not is_done and not ended:
        yield "launching", at, until


def _kind(secondary: str) -> str:
    if secondary in _LAUNCHING:
        return "launching"
    if secondary in _STARTING:
        return "starting"
    return "saving" if secondary in _SAVING else "running"


def _longest(held_up: Sequence[int]) -> tuple[int | None, int]:
    """The rank with the largest value, the first of equals; none if all are 0."""
    most = max(held_up, default=0)
    return (held_up.index(most), most) if most else (None, 0)


def time_sentences(split: TimeSplit) -> Iterator[str]:
    """`62% of the time of all replicas was training, 21% waiting for other replicas …`; none where nothing is known.

    The first sentence has the shares, if any round says what the time was spent on; the others name who was slow.
    """
    total = split.total
    if not total:
        return
    if split.rounds:
        kinds = {
            "waiting for other replicas": split.waiting,
            "exchanging": split.exchanging,
            "saving": split.saving,
            "loading": split.loading,
            "launching or waiting for capacity": split.launching,
            "downloading the image and the data": split.starting,
            "starting or ending the program": split.other,
        }
        parts = [(value / total, name) for name, value in kinds.items() if value / total >= _SHARE_MIN]
        words = [f"{share:.0%} {name}" for share, name in sorted(parts, key=lambda part: -part[0])]
        yield f"{', '.join([f'{split.training / total:.0%} of the time of all replicas was training', *words])}."
    if split.slowest is not None and split.waiting and split.slowest_seconds >= _NAMED_MIN * split.waiting:
        rounds = f"{split.slowest_rounds:,} of {split.rounds:,} rounds"
        share = min(1.0, split.slowest_seconds / split.waiting)
        yield f"Replica {split.slowest} was the last in {rounds}: {share:.0%} of the waiting was for it."
    if split.longest_launch_rank is not None and split.longest_launch >= _LAUNCH_NAMED_MIN * total / split.replicas:
        waited = clock(split.longest_launch)
        yield f"Replica {split.longest_launch_rank} took longest to launch: {waited}."
