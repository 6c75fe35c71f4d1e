"""What SageMaker reports of a job is read at the end of its attempt, and again at the settlement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaResult
from muster.control.react import JobStateChange
from muster.control.settle import settle
from tests.memory import server_error, throttle
from tests.memory.harness import RUN, ControlHarness, budget

METRIC = {"name": "loss", "regex": "loss=([0-9.]+)"}
RULE = {"rule_configuration_name": "Overfit", "rule_evaluator_image": "i"}


def end(harness: ControlHarness, rank: int = 0, reason: str | None = None, **described: Any) -> Attempt:
    """Launch a replica, and end its attempt; `described`: what DescribeTrainingJob says of it."""
    harness.arm(rank)
    job = harness.job(rank)
    harness.cloud.training.describe_with(job, **described)
    if reason is None:
        harness.cloud.training.complete(job)
    else:
        harness.cloud.training.train(job)
        harness.cloud.training.fail(job, reason)
    harness.deliver()
    return harness.record(rank).current


def final(harness: ControlHarness, value: float) -> dict[str, Any]:
    return {"FinalMetricDataList": [{"MetricName": "loss", "Value": value, "Timestamp": harness.cloud.clock.now()}]}


def rule(harness: ControlHarness, status: str) -> dict[str, Any]:
    found = {"RuleConfigurationName": "Overfit", "RuleEvaluationStatus": status}
    return {"DebugRuleEvaluationStatuses": [{**found, "LastModifiedTime": harness.cloud.clock.now()}]}


def settled(harness: ControlHarness) -> list[ReplicaResult]:
    return list(settle(harness.plane.runs.require(RUN), budget()).replicas)


def test_final_metrics_are_in_the_record_the_roll_up_and_the_result(harness: ControlHarness) -> None:
    harness.plan(metric_definitions=[METRIC])
    attempt = end(harness, **final(harness, 0.25))
    assert attempt.details is not None
    assert [(one.name, one.value) for one in attempt.details.metrics] == [("loss", 0.25)]
    [replica] = settled(harness)
    assert replica.attempts[-1].details == attempt.details


def test_an_attempt_that_was_replaced_leaves_its_metrics_out_of_the_result(harness: ControlHarness) -> None:
    harness.plan(metric_definitions=[METRIC])
    end(harness, reason="InternalServerError: again", **final(harness, 9.0))
    harness.cloud.clock.advance(600)
    harness.arm(attempt=2)
    harness.cloud.training.describe_with(harness.job(attempt=2), **final(harness, 0.5))
    harness.cloud.training.complete(harness.job(attempt=2))
    harness.deliver()
    [replica] = settled(harness)
    assert [[one.value for one in attempt.details.metrics] for attempt in replica.attempts if attempt.details] == [
        [],
        [0.5],
    ]


def test_a_run_that_asks_for_nothing_costs_no_call(harness: ControlHarness) -> None:
    harness.plan()
    assert end(harness).details is None
    settled(harness)
    assert harness.cloud.calls.counts()["DescribeTrainingJob"] == 0


def test_a_spot_attempt_has_what_was_trained_and_what_was_billed(harness: ControlHarness) -> None:
    harness.plan(spot=True)
    harness.arm()
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(500)
    harness.cloud.training.set_billable_seconds(harness.job(), 100)
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    attempt = harness.record().current
    assert attempt.details is not None
    assert (attempt.details.training_seconds, attempt.billable_seconds) == (500, 100)


@pytest.mark.parametrize("fault", [throttle, server_error])
def test_an_end_is_decided_although_its_details_cannot_be_read_and_the_settlement_reads_them(
    harness: ControlHarness, fault: Any
) -> None:
    harness.plan(metric_definitions=[METRIC])
    harness.cloud.calls.inject(fault("DescribeTrainingJob"))
    attempt = end(harness, **final(harness, 0.25))
    assert (attempt.status, attempt.details) == ("Completed", None)
    [replica] = settled(harness)
    assert replica.attempts[-1].details is not None
    assert [one.value for one in replica.attempts[-1].details.metrics] == [0.25]


def test_a_rule_that_was_still_evaluated_is_read_again_at_the_settlement(harness: ControlHarness) -> None:
    harness.plan(debug_rule_configurations=[RULE])
    attempt = end(harness, **rule(harness, "InProgress"))
    assert attempt.details is not None
    harness.cloud.training.describe_with(harness.job(), **rule(harness, "IssuesFound"))
    [replica] = settled(harness)
    assert replica.attempts[-1].details is not None
    assert [one.status for one in replica.attempts[-1].details.rules] == ["IssuesFound"]


def test_a_verdict_that_is_final_is_not_asked_for_again(harness: ControlHarness) -> None:
    harness.plan(debug_rule_configurations=[RULE])
    end(harness, **rule(harness, "NoIssuesFound"))
    before = harness.cloud.calls.counts()["DescribeTrainingJob"]
    settled(harness)
    assert (before, harness.cloud.calls.counts()["DescribeTrainingJob"]) == (1, 1)


def test_a_warm_pool_is_known_with_its_end(harness: ControlHarness) -> None:
    harness.plan(keep_alive_period_in_seconds=1_800)
    attempt = end(harness, WarmPoolStatus={"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 0})
    assert attempt.details is not None
    assert attempt.details.warm_pool is not None
    ends_at = harness.cloud.clock.now() + timedelta(seconds=1_800)
    assert attempt.details.warm_pool.until == ends_at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


# --- messages of transitions ------------------------------------------------------------------------


def test_the_message_of_a_status_is_recorded_and_replaced_by_a_newer_one(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    why = "Insufficient capacity error from EC2 while launching instances, retrying!"
    harness.cloud.training.say(harness.job(), why)
    harness.deliver()
    assert [step.message for step in harness.record().current.history] == [why]
    harness.cloud.training.say(harness.job(), "Preparing the instances for training")
    harness.deliver()
    assert [step.message for step in harness.record().current.history] == ["Preparing the instances for training"]


@pytest.mark.parametrize(("message", "kept"), [("a\nb " * 500, 200), (None, 0), (7, 0)])
def test_a_message_of_any_form_is_bounded(harness: ControlHarness, message: object, kept: int) -> None:
    harness.plan()
    harness.arm()
    step = {"Status": "Starting", "StartTime": 1, "StatusMessage": message}
    detail = {"TrainingJobName": harness.job(), "TrainingJobStatus": "InProgress", "SecondaryStatus": "Starting"}
    harness.react(JobStateChange.model_validate({**detail, "SecondaryStatusTransitions": [step]}))
    [noted] = harness.record().current.history
    assert len(noted.message) == kept
    assert "\n" not in noted.message
