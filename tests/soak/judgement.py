"""Whether what Muster says of a run is true, judged by what SageMaker and Step Functions have seen. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from muster.contract.run.result import ReplicaOutcome, Result, Verdict
from tests.soak.night_plan import ROUNDS, PlannedRun

ENDS = {"Completed", "Failed", "Stopped"}
_EXECUTION = {Verdict.SUCCEEDED: "SUCCEEDED", Verdict.FAILED: "FAILED", Verdict.STOPPED: "ABORTED"}

# What the faults of a night say in a function's error, and what Lambda says of a process that was killed.
_EXPLANATIONS = (
    *("InternalError", "InternalFailure", "ThrottlingException", "SlowDown", "Rate exceeded", "internal error"),
    *("Connection was closed", "IncompleteRead", "Runtime exited", "signal: killed", "exited"),
)


@dataclass(frozen=True)
class SeenJob:
    """A training job as SageMaker lists it in the morning."""

    rank: int
    attempt: int
    status: str
    created: datetime
    ended: datetime | None


@dataclass(frozen=True)
class Morning:
    """What is left of one run."""

    planned: PlannedRun
    execution: str
    """The status of its execution."""
    result: Result | None
    shown: str
    """The state that a client shows."""
    cancelled: bool
    """Whether a cancellation stopped it."""
    jobs: Sequence[SeenJob]


def violations(run: Morning) -> Iterator[str]:
    """What is not true, each in a sentence."""
    yield from _unfinished(run)
    if (result := run.result) is None:
        yield "it has no result"
        return
    verdict = result.verdict
    if verdict not in run.planned.verdicts:
        wanted = " or ".join(sorted(run.planned.verdicts))
        yield f"its verdict is {verdict} instead of {wanted}: {result.reason}"
    if verdict is Verdict.STOPPED and not run.cancelled:
        yield "its verdict is stopped, and it was not cancelled"
    if not run.cancelled and run.execution != _EXECUTION[verdict]:
        yield f"its execution is {run.execution}, its verdict {verdict}"
    if run.shown != verdict:
        yield f"clients show {run.shown}, its verdict is {verdict}"
    yield from _false_attempts(run, result)
    yield from _false_outcomes(result)


def _unfinished(run: Morning) -> Iterator[str]:
    for job in run.jobs:
        if job.status not in ENDS:
            yield f"the job of rank {job.rank}, attempt {job.attempt} is {job.status}"
    by_rank: dict[int, list[SeenJob]] = defaultdict(list)
    for job in run.jobs:
        by_rank[job.rank].append(job)
    for rank, jobs in by_rank.items():
        for earlier, later in pairwise(sorted(jobs, key=lambda job: job.attempt)):
            if earlier.ended is None or later.created < earlier.ended:
                yield f"rank {rank} had two live jobs: attempts {earlier.attempt} and {later.attempt}"


def _false_attempts(run: Morning, result: Result) -> Iterator[str]:
    seen = {(job.rank, job.attempt): job.status for job in run.jobs}
    told = {
        (replica.rank, attempt.attempt): attempt.status
        for replica in result.replicas
        for attempt in replica.attempts
        if attempt.was_created
    }
    for rank, attempt in sorted(seen.keys() - told.keys()):
        yield f"rank {rank}, attempt {attempt} had a job that the result does not name"
    for rank, attempt in sorted(told.keys() - seen.keys()):
        yield f"rank {rank}, attempt {attempt} has no job, and the result names one"
    for key in sorted(seen.keys() & told.keys()):
        if seen[key] != told[key]:
            yield f"rank {key[0]}, attempt {key[1]} ended as {seen[key]}, and the result says {told[key]}"


def _false_outcomes(result: Result) -> Iterator[str]:
    outcomes = [replica.outcome for replica in result.replicas]
    if result.verdict is Verdict.FAILED and ReplicaOutcome.FAILED not in outcomes:
        yield f"its verdict is failed, and no replica has failed: {result.reason}"
    if result.verdict is not Verdict.SUCCEEDED:
        return
    for replica in result.replicas:
        if replica.outcome is not ReplicaOutcome.SUCCEEDED or replica.round != ROUNDS or replica.checksum is None:
            yield f"it succeeded, and rank {replica.rank} is {replica.outcome} in round {replica.round}"
    if result.parameters_identical is not True:
        yield "it succeeded, and its replicas hold different parameters"


def different_parameters(runs: Sequence[Morning]) -> Iterator[str]:
    """The runs that succeeded with other bytes than the first one: all train the same."""
    first: str | None = None
    for run in runs:
        if run.result is None or run.result.verdict is not Verdict.SUCCEEDED:
            continue
        for checksum in {replica.checksum for replica in run.result.replicas} - {None}:
            first = first or checksum
            if checksum != first:
                yield f"{run.planned.name}: its parameters are not those of the other runs"


def is_explained(error: str) -> bool:
    """Whether a fault of the night explains the error of a dead letter."""
    return any(words in error for words in _EXPLANATIONS)
