"""The soak: no lie about a run passes its judgement."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from tests.soak.judgement import Morning, SeenJob, violations
from tests.soak.night_plan import ROUNDS, Blow, PlannedRun, TimedBlow

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(number: int, status: str = "Completed", **fields: object) -> Attempt:
    return Attempt.model_validate({"attempt": number, "job": f"j{number}", "status": status, **fields}, strict=False)


def replica(rank: int, *attempts: Attempt, **fields: object) -> ReplicaResult:
    values = {"outcome": ReplicaOutcome.SUCCEEDED, "round": ROUNDS, "checksum": "c", **fields}
    return ReplicaResult.model_validate({"rank": rank, "attempts": attempts, **values})


def job(rank: int, number: int, status: str = "Completed", *, begin: int = 0, end: int | None = 10) -> SeenJob:
    ended = None if end is None else BEGAN + timedelta(seconds=end)
    return SeenJob(rank, number, status, BEGAN + timedelta(seconds=begin), ended)


def result(*replicas: ReplicaResult, verdict: Verdict = Verdict.SUCCEEDED, identical: bool | None = True) -> Result:
    return Result(
        run="night-1",
        verdict=verdict,
        reason="",
        settled_at=timestamps.text(BEGAN),
        replicas=replicas,
        reruns=1,
        parameters_identical=identical,
    )


FAILED = attempt(1, "Failed", failure_class=FailureClass.INFRASTRUCTURE)
REFUSED = attempt(2, "Failed", secondary=NOT_CREATED, failure_class=FailureClass.QUOTA)
GOOD = Morning(
    PlannedRun("night-1", 2),
    "SUCCEEDED",
    result(replica(0, attempt(1)), replica(1, FAILED, REFUSED, attempt(3))),
    "succeeded",
    cancelled=False,
    jobs=[job(0, 1), job(1, 1, "Failed", end=4), job(1, 3, begin=4)],
)


def test_what_is_true_passes() -> None:
    lost = replica(0, attempt(1, "Failed"), outcome=ReplicaOutcome.FAILED, round=None, checksum=None)
    failed = result(lost, verdict=Verdict.FAILED, identical=None)
    fatal = PlannedRun("night-1", 1, fatal=True)
    stopped = result(replica(0, outcome=ReplicaOutcome.NOT_LAUNCHED), verdict=Verdict.STOPPED, identical=None)
    cancelled = PlannedRun("night-1", 1, blows=[TimedBlow(Blow.CANCEL, 1.0)])
    for morning in (
        GOOD,
        Morning(fatal, "FAILED", failed, "failed", cancelled=False, jobs=[job(0, 1, "Failed")]),
        Morning(cancelled, "ABORTED", stopped, "stopped", cancelled=True, jobs=[]),
    ):
        assert list(violations(morning)) == []


def with_verdict(verdict: Verdict, **changes: Any) -> Morning:
    return replace(GOOD, result=GOOD.result and GOOD.result.model_copy(update={"verdict": verdict}), **changes)


FATAL = PlannedRun("night-1", 2, fatal=True)
LIES = [
    (replace(GOOD, result=None), "no result"),
    (replace(GOOD, planned=FATAL), "succeeded instead of failed"),
    (with_verdict(Verdict.STOPPED), "was not cancelled"),
    (with_verdict(Verdict.FAILED, planned=FATAL, execution="FAILED", shown="failed"), "no replica has failed"),
    (replace(GOOD, execution="FAILED"), "its execution is FAILED"),
    (replace(GOOD, shown="failed"), "clients show failed"),
    (replace(GOOD, jobs=GOOD.jobs[1:]), "rank 0, attempt 1 has no job"),
    (replace(GOOD, jobs=[*GOOD.jobs, job(0, 2, begin=11)]), "attempt 2 had a job that the result does not name"),
    (replace(GOOD, jobs=[job(0, 1, "Stopped"), *GOOD.jobs[1:]]), "ended as Stopped, and the result says Completed"),
    (replace(GOOD, jobs=[job(0, 1, "InProgress", end=None), *GOOD.jobs[1:]]), "is InProgress"),
    (replace(GOOD, jobs=[*GOOD.jobs[:2], job(1, 3, begin=3)]), "rank 1 had two live jobs: attempts 1 and 3"),
    (replace(GOOD, result=result(replica(0, attempt(1), round=1), replica(1, FAILED, attempt(3)))), "in round 1"),
    (
        replace(GOOD, result=result(replica(0, attempt(1)), replica(1, FAILED, attempt(3)), identical=False)),
        "different parameters",
    ),
]


def test_every_lie_is_found() -> None:
    for lie, words in LIES:
        found = list(violations(lie))
        assert any(words in line for line in found), (words, found)
