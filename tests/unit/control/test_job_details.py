"""What AWS says of a job is read at the end of its attempt, and again at the settlement, with the last log lines."""

from typing import Any

import pytest

from muster.contract.run.attempt import Attempt
from muster.contract.run.job_details import JobDetails
from muster.contract.run.result import ReplicaResult
from muster.control.react import JobStateChange
from muster.control.run_result import write_result
from tests.memory import server_error, throttle
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import AGAIN, Row, complete, fail, found, launched

METRIC = {"name": "loss", "regex": "loss=([0-9.]+)"}
RULE = {"rule_configuration_name": "Overfit", "rule_evaluator_image": "i"}


def end(harness: ControlHarness, **described: Any) -> Attempt:
    """Launch the replica and let it complete; `described`: what DescribeTrainingJob says of its job."""
    harness.arm()
    harness.cloud.training.describe_with(harness.job(), **described)
    complete(harness)
    return harness.record().current


def final(harness: ControlHarness, value: float) -> dict[str, Any]:
    return {"FinalMetricDataList": [{"MetricName": "loss", "Value": value, "Timestamp": harness.cloud.clock.now()}]}


def rule(harness: ControlHarness, status: str) -> dict[str, Any]:
    verdict = {"RuleConfigurationName": "Overfit", "RuleEvaluationStatus": status}
    return {"DebugRuleEvaluationStatuses": [{**verdict, "LastModifiedTime": harness.cloud.clock.now()}]}


def settled(harness: ControlHarness) -> ReplicaResult:
    [replica] = write_result(harness.plane.runs.require(RUN), budget()).replicas
    return replica


def metrics(details: JobDetails | None) -> list[tuple[str, float]]:
    return [(one.name, one.value) for one in found(details).metrics]


def test_an_attempt_that_was_replaced_leaves_its_metrics_out_of_the_result(harness: ControlHarness) -> None:
    launched(harness, metric_definitions=[METRIC])
    harness.cloud.training.describe_with(harness.job(), **final(harness, 9.0))
    fail(harness, AGAIN)
    harness.arm(attempt=2)
    harness.cloud.training.describe_with(harness.job(attempt=2), **final(harness, 0.5))
    complete(harness, attempt=2)
    assert [metrics(one.details) for one in settled(harness).attempts] == [[], [("loss", 0.5)]]


def test_a_run_that_asks_for_nothing_costs_no_call(harness: ControlHarness) -> None:
    harness.plan()
    assert end(harness).details is None
    settled(harness)
    counts = harness.cloud.calls.counts()
    assert (counts["DescribeTrainingJob"], counts["DescribeLogStreams"]) == (0, 0)


def test_an_end_is_decided_although_its_details_cannot_be_read_and_the_settlement_reads_them(row: Row) -> None:
    for name, fault in (("throttled", throttle), ("down", server_error)):
        with row(name) as harness:
            harness.plan(metric_definitions=[METRIC])
            harness.cloud.calls.inject(fault("DescribeTrainingJob"))
            attempt = end(harness, **final(harness, 0.25))
            assert (attempt.status, attempt.details) == ("Completed", None)
            assert [metrics(one.details) for one in settled(harness).attempts] == [[("loss", 0.25)]]


def test_a_look_that_lags_behind_the_end_bills_nothing_and_the_settlement_looks_again(harness: ControlHarness) -> None:
    launched(harness, spot=True, max_wait_seconds=172_800)
    job, training = harness.job(), harness.cloud.training
    training.train(job)
    training.set_billable_seconds(job, 4_000)
    harness.cloud.clock.advance(7_200)
    training.lag(job)
    complete(harness)
    ended = harness.record().current
    assert (ended.status, ended.billable_seconds, ended.details) == ("Completed", None, None)
    assert found(settled(harness).usd) == pytest.approx(0.23, abs=0.01)  # two hours of an ml.m5.large
    harness.plane.store.s3.delete_object(Bucket="bucket", Key=f"control/{RUN}/result.json")
    training.catch_up(job)
    replica = settled(harness)
    assert (replica.attempts[0].billable_seconds, found(replica.attempts[0].details).training_seconds) == (4_000, 7_200)


def test_a_rule_that_was_still_evaluated_is_read_again_at_the_settlement(row: Row) -> None:
    for before, after, looks in (("InProgress", "IssuesFound", 2), ("NoIssuesFound", "NoIssuesFound", 1)):
        with row(before) as harness:
            harness.plan(debug_rule_configurations=[RULE])
            end(harness, **rule(harness, before))
            harness.cloud.training.describe_with(harness.job(), **rule(harness, after))
            [attempt] = settled(harness).attempts
            assert [one.status for one in found(attempt.details).rules] == [after]
            assert harness.cloud.calls.counts()["DescribeTrainingJob"] == looks


def test_a_message_of_any_form_is_bounded_and_replaced_by_a_newer_one(harness: ControlHarness) -> None:
    launched(harness)
    job = {"TrainingJobName": harness.job(), "TrainingJobStatus": "InProgress", "SecondaryStatus": "Starting"}
    messages: list[tuple[object, int]] = [("waits", 5), ("a\nb " * 500, 200), (None, 0), (7, 0)]
    for message, kept in messages:
        step = {"Status": "Starting", "StartTime": 1, "StatusMessage": message}
        harness.react(JobStateChange.model_validate({**job, "SecondaryStatusTransitions": [step]}))
        [noted] = harness.record().current.history
        assert (len(noted.message), "\n" in noted.message) == (kept, False), message


# --- the last log lines of attempts that failed -----------------------------------------------------


def last_lines(harness: ControlHarness, *lines: str) -> tuple[str, ...]:
    """Those in the result of a replica that has written these lines and failed."""
    harness.arm()
    harness.cloud.training.train(harness.job())
    for number, line in enumerate(lines):
        harness.cloud.logs.write(harness.job(), line, host=f"algo-{number % 2 + 1}")
        harness.cloud.clock.advance(1)
    fail(harness)
    return settled(harness).attempts[0].last_lines


def test_the_last_lines_of_a_failed_attempt_are_in_the_result_without_the_values_of_its_environment(
    harness: ControlHarness,
) -> None:
    """Those of all its instances, in the order of their time."""
    harness.plan(environment={"API_KEY": "sk-0123456789"})
    lines = last_lines(harness, *(f"step {number}" for number in range(100)), "401 for sk-0123456789")
    assert lines == (*(f"step {number}" for number in range(61, 100)), "401 for (API_KEY, not shown)")
    assert harness.record().current.last_lines == ()


def test_a_log_that_cannot_be_read_does_not_keep_a_run_from_its_result(row: Row) -> None:
    for operation in ("DescribeLogStreams", "GetLogEvents"):
        with row(operation) as harness:
            harness.plan()
            harness.cloud.calls.inject(throttle(operation, count=None))
            assert last_lines(harness, "why") == ()
