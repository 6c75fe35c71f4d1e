"""The status of a run: a closed document, made by pure functions of what Muster has recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue

from muster.client.aws.reported import Execution
from muster.client.forecasts import forecasts
from muster.client.runs.failed_attempt import FailedAttempt, failed_attempts
from muster.client.runs.run_state import RunState, execution_state
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import BEFORE_TRAINING, JobStatus
from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.names import run_name
from muster.contract.run.attempt import Attempt, parkings
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.commit import Commit, Finish
from muster.contract.run.finding import Finding, FindingDocument
from muster.contract.run.forecast import Forecast
from muster.contract.run.job_details import JobDetails
from muster.contract.run.model import ModelResult
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import Result
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.run.round_values import DEFAULT_UNIT
from muster.contract.run.run_cost import SpotSaving, saving
from muster.contract.run.seat_states import SeatState, SeatsView
from muster.contract.run.time_use import TimeUse
from muster.contract.run.trained_data import EpochShards
from muster.contract.run.training_pace import Pace, end_of, has_stalled
from muster.contract.run.where import Where
from muster.contract.spec.recipe_reference import RunRecipe
from muster.contract.spec.sweep_values import values_of
from muster.contract.timestamps import Timestamp
from muster.contract.training.ranks import ranks_in, show_ranks
from muster.report.read_back import KeptInstances, kept_pools
from muster.report.time_split import TimeSplit, time_split
from muster.report.words import commits_text

_ENDS = frozenset(status for status in JobStatus if status.is_terminal)
# Secondary statuses in which the container does not run yet, or no longer after a spot interruption.
_NOT_TRAINING = {*BEFORE_TRAINING, "Interrupted", "Restarting"}
# The causes of a replica that was stopped by a user, or by Muster with the rest of the run: its own work did not fail.
_STOPS = {None, FailureClass.STOPPED_BY_USER, FailureClass.STOPPED_BY_MUSTER}


class ReplicaState(StrEnum):
    """Where a replica stands, in the words that schedulers and executors share."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether it can never change again."""
        return self not in {ReplicaState.PENDING, ReplicaState.RUNNING}


class ReplicaStatus(Document):
    """One replica: its latest attempt, and how far it has come."""

    rank: int
    attempt: int = Field(default=0, description="0 before the first launch")
    job: str | None = Field(default=None, description="none where the latest attempt's launch was refused")
    status: str | None = Field(default=None, description="of the latest attempt's job; none until one is known")
    secondary: str = ""
    since: Timestamp | None = Field(default=None, description="when the status and the secondary status began")
    reason: str = Field(default="", description="why the latest attempt did not succeed, in words")
    rerun_follows: bool | None = Field(
        default=None, description="after the end of an attempt: whether another one follows; none before its end"
    )
    waiting_for: FailureClass | None = Field(
        default=None, description="what the next attempt waits for, when its launch was refused for now"
    )
    round: int | None = Field(default=None, description="the latest round it took part in")
    samples_per_second: float | None = Field(
        default=None, description="in the last rounds that it took part in; none where not known, or while it waits"
    )
    finished_early: str | None = Field(
        default=None, description="how the replica finished, where others train on or did; none where none did"
    )
    metrics: dict[str, float] = Field(default_factory=dict)
    values: dict[str, JsonValue] = Field(default_factory=dict, description="of a sweep: this replica's, by name")
    message: str = Field(default="", description="SageMaker's or the operator's words on the present secondary status")
    details: JobDetails | None = Field(
        default=None, description="what the spec asked SageMaker for, of the latest attempt that has ended"
    )
    backend: Backend = Field(default=Backend.TRAINING_JOB, description="where its jobs run")
    cluster: ClusterJob | None = Field(
        default=None, description="of a job on a cluster: where it is, its instances and its restarts by the operator"
    )
    where: Where | None = Field(
        default=None, description="of a run with `places`: where the latest attempt runs, and why there"
    )
    seat: SeatState | None = Field(default=None, description="of an elastic run: where the replica's seat stands")
    ends: tuple[FailureClass | None, ...] = Field(
        default=(), description="why each ended attempt did not succeed, oldest first; none where not known"
    )

    @property
    def is_waiting(self) -> bool:
        """Whether, while the run has not ended, no program of it runs: it waits for a launch, a start or an attempt."""
        between = {None, JobStatus.FAILED, JobStatus.STOPPED}
        return self.status in between or (self.status == JobStatus.IN_PROGRESS and self.secondary in _NOT_TRAINING)

    @property
    def has_ended(self) -> bool:
        """Whether no further attempt follows the latest one, which has ended."""
        return self.status == JobStatus.COMPLETED or self.rerun_follows is False

    @property
    def may_have_job(self) -> bool:
        """Whether the latest attempt's job may be running: no end of it is known."""
        return self.job is not None and self.status not in _ENDS

    @property
    def is_cancelled(self) -> bool:
        """Whether its job was stopped by a user, and no further attempt follows."""
        return self.rerun_follows is False and self.ends[-1:] == (FailureClass.STOPPED_BY_USER,)

    def state_in(self, run: RunState) -> ReplicaState:
        """Where it stands in a run that is in this state.

        Until the run has ended a failed attempt is no failure of the replica: another attempt may follow. A job that
        reached a time limit has failed.
        """
        if self.status == JobStatus.COMPLETED:
            return ReplicaState.SUCCEEDED
        if not run.is_terminal:
            return ReplicaState.PENDING if self.is_waiting else ReplicaState.RUNNING
        cause = self.ends[-1] if self.ends else None
        stopped = self.status in {None, JobStatus.STOPPED} and cause in _STOPS
        return ReplicaState.CANCELLED if stopped else ReplicaState.FAILED


class RunStatus(Document):
    """A run as it is now."""

    run: str
    state: RunState
    reason: str = ""
    started_at: Timestamp
    ended_at: Timestamp | None = None
    behind: tuple[str, ...] | None = Field(
        default=None, description="the runs ahead of it in the run queue; none when it is not queued"
    )
    round: int | None = Field(default=None, description="the latest round that was committed")
    round_at: Timestamp | None = Field(default=None, description="when it was committed, by the replicas' account")
    expected_rounds: int | None = Field(default=None, description="how many rounds the trainers expect in all")
    unit: str = Field(default=DEFAULT_UNIT, description="what the trainers count, such as `samples` or `tokens`")
    samples: float | None = Field(default=None, description="how many have counted so far, in all rounds")
    data: EpochShards | None = Field(
        default=None, description="how far the run is in its data; none where its trainers do not use `context.shards`"
    )
    samples_per_second: float | None = Field(
        default=None, description="how many counted in the last rounds, per second; none while the run stalls"
    )
    stalled: bool = Field(
        default=False, description="whether the present round takes far longer than the longest of those before it"
    )
    ends_at: Timestamp | None = Field(
        default=None, description="when the last expected round will be committed, at the pace of the last rounds"
    )
    excluded: int = Field(default=0, description="contributions that were left out of a round as unusable, all rounds")
    reruns: int = Field(default=0, description="attempts after a failed one, all replicas together")
    parent: str | None = Field(default=None, description="the run that this one continues")
    recipe: RunRecipe | None = Field(default=None, description="the run's recipe; none where it has none, or none yet")
    continued_by: str | None = Field(default=None, description="the run that continues this one")
    awaits_continuation: bool = Field(
        default=False, description="whether the continuation policy is about to start a continuation"
    )
    page: str | None = Field(default=None, description="the URI of the settled run's page, s3://…")
    model: ModelResult | None = Field(default=None, description="the model that the settled run leaves")
    findings: tuple[Finding, ...] = Field(
        default=(), description="rules of `watch` that were met, with their evidence, by round; the first ones of many"
    )
    remarks: tuple[str, ...] = Field(
        default=(), description="what replicas wrote and cannot be read, and what is missing for that reason, in words"
    )
    time: TimeSplit = Field(default_factory=TimeSplit, description="where the time of the replicas went so far")
    forecast: Forecast | None = Field(
        default=None,
        description="how its time should be shared out, beside how it was; null where it does not say how it trains",
    )
    failures: tuple[FailedAttempt, ...] = Field(
        default=(), description="of each replica the latest attempt that failed and wrote a log; the first ones of many"
    )
    warm_pools: tuple[KeptInstances, ...] = Field(
        default=(), description="instances that are kept after the end of a job, and billed"
    )
    saving: SpotSaving | None = Field(default=None, description="what managed spot has saved; none where nothing")
    seats: SeatsView | None = Field(default=None, description="of an elastic run; none where the number is fixed")
    replicas: tuple[ReplicaStatus, ...] = Field(
        description="by rank; of an elastic run those that are wanted or have been launched"
    )


@dataclass(frozen=True)
class Progress:
    """The content of the commits seen so far: the latest round, and each replica's own latest one with its metrics.

    `finished` are the replicas that had finished before the latest round.
    """

    round: int | None = None
    excluded: int = 0
    rounds: Mapping[int, int] = field(default_factory=dict)
    metrics: Mapping[int, dict[str, float]] = field(default_factory=dict)
    identical: tuple[int, ...] = ()
    """The ranks whose contributions to that round have the same values as another's."""
    finished: tuple[Finish, ...] = ()
    findings: tuple[FindingDocument, ...] = ()
    unreadable: tuple[str, ...] = ()
    """The commits that cannot be read, each with the reason."""
    committed_at: Timestamp | None = None
    unit: str = DEFAULT_UNIT
    expected_rounds: int | None = None
    samples: float | None = None
    data: EpochShards | None = None
    pace: Pace | None = None
    time_use: TimeUse | None = None
    newest: Commit | None = None
    """The commit of the latest round; None also where each replica has rounds of its own."""
    earlier: Commit | None = None
    """That of a round before it, at the first look of the last one; None if none was read."""


def settled_progress(progress: Progress, result: Result) -> Progress:
    """`progress` completed from the result, which has read the replicas' manifests."""
    known = [replica for replica in result.replicas if replica.round is not None]
    return replace(
        progress,
        rounds={**progress.rounds, **{replica.rank: replica.round for replica in known if replica.round is not None}},
        metrics={**progress.metrics, **{replica.rank: replica.metrics for replica in known if replica.metrics}},
    )


@dataclass(frozen=True)
class Observation:
    """Everything that a look at a run found."""

    run: str
    execution: Execution
    entries: Mapping[int, ReplicaEntry]
    now: datetime
    progress: Progress = field(default_factory=Progress)
    result: Result | None = None
    behind: tuple[str, ...] | None = None
    continued_by: str | None = None
    awaits_continuation: bool = False
    page: str | None = None
    warm_pools: Mapping[str, int | None] | None = None
    """The jobs that keep a warm pool, as SageMaker lists them; None where it was not asked."""
    seats: SeatsView | None = None
    """Of an elastic run."""

    def ranks(self, attempts: Collection[int]) -> list[int]:
        """The replicas that a status shows: of those that are parked only the ones that had `attempts`."""
        every = range(self.execution.replicas) if self.seats is None else ranks_in(self.seats.open)
        return sorted({*every, *attempts})


def run_status(seen: Observation) -> RunStatus:
    """The status of a run."""
    execution = seen.execution
    attempts = known_attempts(seen.entries, seen.result)
    state = _state(execution, attempts.values(), seen.result, seen.now)
    if state.is_terminal:
        # Of an attempt without a status no job was created, and none will be.
        attempts = {rank: tuple(one for one in found if one.status) for rank, found in attempts.items()}
    speed = _speed(seen, state)
    rates = () if speed.rate is None or seen.progress.pace is None else seen.progress.pace.by_rank
    replicas = tuple(_replicas(seen, attempts, state, rates))
    return RunStatus(
        run=seen.run,
        state=state,
        reason=seen.result.reason if seen.result else execution.end,
        started_at=timestamps.text(execution.started_at),
        ended_at=timestamps.text(execution.ended_at) if execution.ended_at else None,
        behind=seen.behind,
        round=seen.progress.round,
        round_at=seen.progress.committed_at,
        expected_rounds=seen.progress.expected_rounds,
        unit=seen.progress.unit,
        samples=seen.progress.samples,
        data=seen.progress.data,
        samples_per_second=speed.rate,
        stalled=speed.stalled,
        ends_at=speed.ends_at,
        excluded=seen.progress.excluded,
        reruns=sum(
            max(replica.attempt - 1 - _parkings(seen, replica.rank, attempts.get(replica.rank, ())), 0)
            for replica in replicas
        ),
        parent=execution.parent,
        recipe=seen.result.recipe if seen.result else execution.recipe,
        continued_by=seen.continued_by,
        awaits_continuation=seen.awaits_continuation,
        page=seen.page,
        model=seen.result.model if seen.result else None,
        findings=_findings(seen),
        remarks=(*_remarks(seen), *_may_run(attempts, ended=seen.result is not None)),
        time=_time(seen, attempts),
        forecast=_forecast(seen),
        failures=failed_attempts(run_name(seen.run), attempts),
        warm_pools=kept_pools(attempts, seen.now, execution.prices, listed=seen.warm_pools),
        saving=saving((one for found in attempts.values() for one in found), execution.prices.usd_per_hour),
        seats=seen.seats,
        replicas=replicas,
    )


def _replicas(
    seen: Observation, attempts: Mapping[int, Sequence[Attempt]], state: RunState, rates: Sequence[float | None]
) -> Iterator[ReplicaStatus]:
    execution, progress = seen.execution, seen.progress
    decisions = {} if execution.ended_at else {rank: entry.decision for rank, entry in seen.entries.items()}
    early = {finish.rank: finish.words for finish in progress.finished if finish.run == run_name(seen.run)}
    seats = {} if seen.seats is None else seen.seats.states()
    for rank in seen.ranks(attempts):
        own = attempts.get(rank, ())
        replica = ReplicaStatus(
            rank=rank,
            round=progress.rounds.get(rank),
            metrics=progress.metrics.get(rank, {}),
            finished_early=early.get(rank),
            values=values_of(execution.sweep, rank),
            seat=seats.get(rank),
            **_place(own, execution.clusters.get(rank)),
            **_of_attempts(own, decisions.get(rank)),
        )
        trains = state is not RunState.RUNNING or replica.state_in(state) is ReplicaState.RUNNING
        rate = rates[rank] if trains and rank < len(rates) else None
        yield replica.model_copy(update={"samples_per_second": rate})


def _parkings(seen: Observation, rank: int, attempts: Sequence[Attempt]) -> int:
    """How often a replica was parked until its next attempt. An entry has only the latest attempts."""
    entry = seen.entries.get(rank)
    return max(parkings(attempts), 0 if entry is None else entry.parkings)


def _place(attempts: Sequence[Attempt], asked: str | None) -> dict[str, Any]:
    """Where a replica's jobs run: as its latest attempt says, before the first one as the spec does."""
    known = next((attempt.cluster for attempt in reversed(attempts) if attempt.cluster is not None), None)
    if known is None and asked is not None:
        known = ClusterJob(cluster=asked)
    return {} if known is None else {"backend": Backend.HYPERPOD, "cluster": known}


def _time(seen: Observation, attempts: Mapping[int, Sequence[Attempt]]) -> TimeSplit:
    execution = seen.execution
    ended_at = seen.result.settled_at if seen.result else execution.ended_at and timestamps.text(execution.ended_at)
    every = {rank: attempts.get(rank, ()) for rank in seen.ranks(attempts)}
    span = timestamps.text(execution.started_at), ended_at or timestamps.text(seen.now)
    return time_split(every, seen.progress.time_use, span, ended=ended_at is not None, seats=seen.seats)


def _forecast(seen: Observation) -> Forecast | None:
    offer, progress = forecasts(), seen.progress
    commits = [commit for commit in (progress.newest, progress.earlier) if commit is not None]
    return None if offer is None or not commits else offer.of_run(seen.execution.spec, commits, progress.time_use)


def _findings(seen: Observation) -> tuple[Finding, ...]:
    """Those of this run of its lineage."""
    own = (item.finding for item in seen.progress.findings if item.run == run_name(seen.run))
    return tuple(sorted(own, key=lambda finding: finding.round))


@dataclass(frozen=True)
class _Speed:
    rate: float | None = None
    stalled: bool = False
    ends_at: Timestamp | None = None


def _speed(seen: Observation, state: RunState) -> _Speed:
    """How fast the run trains now; of a run that has ended, how fast it trained in its last rounds."""
    progress = seen.progress
    pace, committed_at = progress.pace, progress.committed_at
    if pace is None or committed_at is None or progress.round is None:
        return _Speed()
    if state is not RunState.RUNNING:
        return _Speed(pace.samples_per_second)
    started_at = seen.execution.started_at
    try:
        last = timestamps.parse(committed_at)
    except ValueError:
        return _Speed()
    if has_stalled(pace, (seen.now - max(last, started_at)).total_seconds()):
        return _Speed(stalled=True)
    if last < started_at:
        return _Speed()  # of the run that it continues
    left = None if progress.expected_rounds is None else progress.expected_rounds - progress.round
    end = end_of(pace, committed_at, left, seen.now)
    return _Speed(pace.samples_per_second, ends_at=None if end is None else timestamps.text(end))


def _may_run(attempts: Mapping[int, Sequence[Attempt]], *, ended: bool) -> Iterator[str]:
    """What may still run in places that did not answer. The result of an ended run says what was known then."""
    verb, what = ("could", "when the run ended: the sweep stops it once") if ended else ("may", "and is stopped once")
    for rank, own in sorted(attempts.items()):
        for where in (attempt.where for attempt in own):
            if where is not None and where.may_run:
                yield (
                    f"A job of replica {rank} {verb} still run in {where.place}, silent since {where.silent_since}, "
                    f"{what} the place answers."
                )


def _remarks(seen: Observation) -> Iterator[str]:
    commits = seen.progress.unreadable
    if commits:
        such = ": " if len(commits) == 1 else ", such as "
        yield f"{commits_text(len(commits), 'cannot be read')}{such}{commits[-1]}."
    if seen.progress.identical:
        same = show_ranks(seen.progress.identical)
        yield f"Replicas {same} contribute identical values: give each one data of its own, by context.rank."
    ranks = [replica.rank for replica in seen.result.replicas if replica.problem] if seen.result else []
    if ranks:
        of = f"of replica {ranks[0]}" if len(ranks) == 1 else f"of {len(ranks):,} replicas"
        yield f"What the manifest {of} says is not known, or not all of it: `muster result {seen.run}` says why."
    if seen.result is not None and seen.result.model is None and seen.result.model_problem is not None:
        yield f"The run has no model: {seen.result.model_problem}."


def known_attempts(entries: Mapping[int, ReplicaEntry], result: Result | None) -> dict[int, tuple[Attempt, ...]]:
    """The attempts of each replica, from the roll-up and, once there is one, the result, which has all of them."""
    found = {rank: {attempt.attempt: attempt for attempt in entry.attempts} for rank, entry in entries.items()}
    for replica in result.replicas if result else ():
        known = found.setdefault(replica.rank, {})
        for attempt in replica.attempts:
            before = known.get(attempt.attempt)
            known[attempt.attempt] = attempt if before is None else _combined(before, attempt)
    return {rank: tuple(known[number] for number in sorted(known)) for rank, known in found.items() if known}


def _combined(recorded: Attempt, settled: Attempt) -> Attempt:
    """One attempt from the roll-up and from the result. The one that has an end is the newer one."""
    if has_ended(recorded) and not has_ended(settled):
        return settled.merged(recorded)
    return recorded.merged(settled).model_copy(update={"failure_class": settled.failure_class})


def has_ended(attempt: Attempt) -> bool:
    """Whether the attempt can never change again; an unknown status does not count as an end."""
    return attempt.status in _ENDS


def is_failure(attempt: Attempt) -> bool:
    """Whether the attempt ended otherwise than completed."""
    return has_ended(attempt) and attempt.status != JobStatus.COMPLETED


def _of_attempts(attempts: Sequence[Attempt], decision: Decision | None) -> dict[str, Any]:
    """What the attempts of a replica say of it."""
    if not attempts:
        return {}
    latest = attempts[-1]
    follows = None if decision is None else decision.next is Next.RERUN
    return {
        "attempt": latest.attempt,
        "job": latest.job if latest.was_created else None,
        "status": latest.status or None,
        "secondary": latest.secondary,
        "since": latest.ended_at or (latest.history[-1].at if latest.history else latest.launched_at),
        "reason": latest.reason,
        "where": latest.where,
        "rerun_follows": follows,
        "waiting_for": latest.failure_class if follows and not latest.was_created else None,
        "message": latest.history[-1].message if latest.history and not has_ended(latest) else "",
        "details": next((one.details for one in reversed(attempts) if one.details is not None), None),
        "ends": tuple(attempt.failure_class for attempt in attempts if is_failure(attempt)),
    }


# Lambda: an asynchronous invocation lasts up to 15 minutes and is retried twice; after that the settlement has failed.
_SETTLED_WITHIN = timedelta(minutes=50)


def is_watched(execution: Execution, now: datetime) -> bool:
    """Whether functions may still be settling the run of an ended execution. Later its event must have been lost."""
    return execution.ended_at is not None and now - execution.ended_at < _SETTLED_WITHIN


def _state(
    execution: Execution, replicas: Collection[Sequence[Attempt]], result: Result | None, now: datetime
) -> RunState:
    if execution.ended_at is None:
        return RunState.RUNNING
    watched = is_watched(execution, now)
    latest = [attempts[-1] for attempts in replicas]
    if watched and any(attempt.has_proven_job and not has_ended(attempt) for attempt in latest):
        return RunState.STOPPING
    if result is not None:
        return RunState(result.verdict)
    # A run whose execution was aborted is settled once its jobs have ended; one that never had a job never is.
    if latest and watched:
        return RunState.STOPPING
    return execution_state(execution.status)
