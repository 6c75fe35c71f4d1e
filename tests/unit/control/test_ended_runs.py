"""What the control plane leaves of a run for lists of runs: an entry among those of its day."""

from typing import Any

import pytest

from muster.contract.run.ended_run import REASON_MAX, EndedRun, EndedRuns, FailureCount
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.ended_runs import enter_ended_run
from tests.memory import AwsError, Call, Fault
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import CONTINUED, complete, cut_off, fail, finished, found, launched, swept


def entered(harness: ControlHarness) -> list[EndedRun]:
    """The entries of all days."""
    keys = [key for key in harness.cloud.s3.objects(harness.cloud.bucket) if key.startswith("ended/")]
    days = [EndedRuns.from_json(found(harness.plane.store.get(key)).body, key) for key in keys]
    return [one for day in days for one in day.runs]


def is_of_a_day(call: Call) -> bool:
    return str(call.parameters.get("Key", "")).startswith("ended/")


def test_a_run_that_has_ended_is_entered_with_what_a_list_shows(harness: ControlHarness) -> None:
    run = launched(
        harness, 2, on_replica_failure="continue", min_replicas=1, reruns={"user-code": {"max_reruns": 1}}, **CONTINUED
    )
    for rank in range(2):
        harness.cloud.training.train(harness.job(rank))
    harness.deliver()
    harness.cloud.clock.advance(3_600)
    fail(harness)
    harness.arm(0, attempt=2)
    fail(harness, attempt=2)
    complete(harness, 1)
    for _ in range(2):
        result = finished(harness).result
    [ended] = entered(harness)
    assert (ended.run, ended.execution_arn, ended.started_at) == (RUN, run.plan.execution_arn, run.plan.created_at)
    assert (ended.verdict, ended.reason, ended.continued_by) == (Verdict.SUCCEEDED, "1 of 2 replicas succeeded", None)
    failures = (FailureCount(failure_class="user-code", attempts=2, reruns=1),)
    assert (ended.replicas, ended.reruns, ended.failures) == (2, 1, failures)
    assert ended.usd == result.usd == pytest.approx(2 * 0.115, rel=0.05), "two instances for an hour"
    written = [call for call in harness.cloud.calls.log if call.operation == "PutObject" and is_of_a_day(call)]
    assert len(written) == 1, "it is entered once however often its end is completed"


def test_runs_that_end_on_one_day_share_its_object_and_a_lost_race_loses_none(harness: ControlHarness) -> None:
    """While the first run is entered, the second one writes the object."""
    for name in ("one", "two"):
        launched(harness, 1, name)
        complete(harness, run=name)
    finished(harness, "two")
    [two] = entered(harness)
    refused = AwsError("PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 412)
    harness.cloud.calls.inject(Fault("PutObject", refused, when=is_of_a_day, count=2))
    assert finished(harness, "one").left == ()
    assert {one.run for one in entered(harness)} == {"one", "two"}
    assert two in entered(harness)


def test_a_run_that_could_not_be_entered_is_entered_by_the_sweep(harness: ControlHarness) -> None:
    run = launched(harness, **CONTINUED)
    fail(harness)
    denied = Fault("PutObject", AwsError("AccessDenied", "denied", 403), when=is_of_a_day, count=1)
    harness.cloud.calls.inject(denied)
    end = finished(harness)
    assert [left.partition(":")[0] for left in end.left] == ["list it among the runs that have ended"]
    assert (entered(harness), run.documents.is_finished()) == ([], False)
    cut_off(harness)
    swept(harness)
    [ended] = entered(harness)
    assert (ended.run, ended.verdict) == (RUN, Verdict.FAILED)
    assert ended.continued_by == end.continued_by == "one-x2"
    assert run.documents.is_finished()


def test_an_entry_stays_small_whatever_a_replica_wrote(harness: ControlHarness) -> None:
    run = harness.plan()
    lost = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED)
    values: dict[str, Any] = {"settled_at": run.plan.created_at, "replicas": (lost,), "reruns": 0}
    result = Result(run=RUN, verdict=Verdict.FAILED, reason="x" * 100_000, **values)
    enter_ended_run(run, result, None)
    [ended] = entered(harness)
    assert len(ended.reason) == REASON_MAX
    assert ended.usd is None, "an older version has not written what the replica cost"
