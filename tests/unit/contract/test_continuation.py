"""Continuations: which runs get one, its name, and what the two runs share."""

from typing import Any

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.continuation import lineage_after, next_run
from muster.contract.run.execution_input import execution_input
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Lineage, Place, Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.spec_reader import parse_spec, parse_spec_text

PLACE = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/replica", job_prefix="muster")
SECOND = Lineage(parent="run", root="run", generation=1, attempts_before=3)


def plan(run: str = "run", lineage: Lineage | None = None, **fields: Any) -> Plan:
    spec = parse_spec({"replicas": 2, "trainer": "package.module:train", "image": "image:1", **fields})
    return Plan.make(
        run, f"arn:aws:states:us-east-1:123456789012:execution:Muster:{run}", "2026-01-01", PLACE, spec, lineage=lineage
    )


def replica(rank: int, attempts: int, failure_class: FailureClass | None) -> ReplicaResult:
    made = [
        Attempt(attempt=n, job=f"j{n}", launched_at="", status="Failed", secondary="", failure_class=failure_class)
        for n in range(1, attempts + 1)
    ]
    outcome = ReplicaOutcome.SUCCEEDED if failure_class is None else ReplicaOutcome.FAILED
    return ReplicaResult(rank=rank, outcome=outcome, attempts=tuple(made))


def result(*replicas: ReplicaResult, verdict: Verdict = Verdict.FAILED) -> Result:
    return Result(run="run", verdict=verdict, reason="", settled_at="", replicas=replicas, reruns=0)


LOST = result(replica(0, 1, None), replica(1, 3, FailureClass.SPOT))


FAILED_ONCE = {"on": ["failed"], "max": 1}
# The policy, the lineage of the run, its end, and the name of the run that follows.
FOLLOWING: list[tuple[dict[str, Any] | None, Lineage | None, Result, str | None]] = [
    (None, None, LOST, None),
    (FAILED_ONCE, None, LOST, "run-x2"),
    ({"on": ["spot", "quota"], "max": 1}, None, LOST, "run-x2"),
    ({"on": ["quota"], "max": 1}, None, LOST, None),
    (FAILED_ONCE, SECOND, LOST, None),
    ({"on": ["failed"], "max": 2}, SECOND, LOST, "run-x3"),
    (FAILED_ONCE, None, LOST.model_copy(update={"verdict": Verdict.STOPPED}), None),
    (FAILED_ONCE, None, LOST.model_copy(update={"verdict": Verdict.SUCCEEDED}), None),
]


def test_when_another_run_follows() -> None:
    for number, (policy, lineage, end, name) in enumerate(FOLLOWING):
        made = plan("run-x2" if lineage else "run", lineage, **{"continue": policy})
        following = next_run(made, end)
        assert (following[0] if following else None) == name, number
        if following:
            again = parse_spec_text(execution_input(following[1]))
            # It has the values of the first although defaults change.
            unchanged = {"name": None, "resume_from": made.run}
            assert again.resolved() == made.spec.model_copy(update=unchanged), number


def test_attempts_count_on_over_the_runs_so_that_every_older_process_is_fenced() -> None:
    assert lineage_after(plan(), LOST) == SECOND
    third = lineage_after(plan("run-x2", SECOND), result(replica(0, 2, FailureClass.SPOT)))
    assert third == Lineage(parent="run-x2", root="run", generation=2, attempts_before=5)
    damaged = ReplicaResult(rank=0, outcome=ReplicaOutcome.UNKNOWN)
    assert lineage_after(plan(), result(damaged)).attempts_before >= 999


def test_a_continuation_meets_and_saves_where_the_first_run_did_and_has_jobs_of_its_own() -> None:
    continued_by = plan("run-x2", SECOND)
    request = training_job_request(continued_by, 1, 2)
    assert request["TrainingJobName"] == "muster-run-x2-r1-a2"
    assert request["Environment"]["MUSTER_ATTEMPT"] == "5"
    assert request["CheckpointConfig"]["S3Uri"] == "s3://bucket/checkpoints/run/r1/"
    document = RunDocument.of(continued_by)
    assert document.rendezvous_uri == "s3://bucket/rendezvous/run/"
    assert (document.run, document.rendezvous_name) == ("run-x2", "run")


def test_a_run_that_a_rule_has_stopped_is_not_continued() -> None:
    policy, reason = FAILED_ONCE, "AlgorithmError: [hang] process 3 of 4 has made no step for 612 s"
    lost = replica(1, 1, FailureClass.INFRASTRUCTURE)
    hung = lost.model_copy(update={"attempts": (lost.attempts[0].model_copy(update={"reason": reason}),)})
    assert (
        next_run(plan(**{"continue": policy}, watch={"hang": {"then": "stop"}}), result(replica(0, 1, None), hung))
        is None
    )
    assert next_run(
        plan(**{"continue": policy}, watch={"hang": {"then": "restart"}}), result(replica(0, 1, None), hung)
    )
