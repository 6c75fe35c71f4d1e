"""What DescribeTrainingJob says of a job beside its status, read into bounded documents."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.contract import timestamps
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.job_details import METRICS_MAX, JobDetails, PoolState, asks_for_details, job_details
from muster.contract.spec.spec_reader import parse_spec

AT = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
END = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SPEC = {"replicas": 1, "trainer": "a:b", "image": "i", "instance_type": "ml.m5.large"}
RULE = {"rule_configuration_name": "Overfit", "rule_evaluator_image": "i"}


def metric(name: str, value: float) -> dict[str, object]:
    return {"MetricName": name, "Value": value, "Timestamp": AT}


def test_everything_that_sagemaker_reports_is_read() -> None:
    found = job_details(
        {
            "TrainingTimeInSeconds": 500,
            "TrainingEndTime": END,
            "ResourceConfig": {"KeepAlivePeriodInSeconds": 1_800},
            "WarmPoolStatus": {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 12},
            "FinalMetricDataList": [metric("loss", 0.25)],
            "DebugRuleEvaluationStatuses": [
                {
                    "RuleConfigurationName": "Overfit",
                    "RuleEvaluationStatus": "IssuesFound",
                    "StatusDetails": "at step 100",
                    "LastModifiedTime": END,
                }
            ],
            "ProfilerRuleEvaluationStatuses": [
                {"RuleConfigurationName": "LowGPU", "RuleEvaluationStatus": "InProgress"}
            ],
            "MlflowConfig": {"MlflowResourceArn": "arn:server"},
            "MlflowDetails": {"MlflowExperimentId": "7", "MlflowRunId": "abc"},
            "ProgressInfo": {"CurrentStep": 3, "TotalStepCountPerEpoch": 10, "CurrentEpoch": 1, "MaxEpoch": 2},
        }
    )
    assert found.training_seconds == 500
    assert [(one.name, one.value, one.at) for one in found.metrics] == [("loss", 0.25, "2026-11-22T10:00:00.000Z")]
    assert found.warm_pool is not None
    assert (found.warm_pool.state, found.warm_pool.kept_seconds, found.warm_pool.until) == (
        PoolState.AVAILABLE,
        12,
        "2026-11-22T12:30:00.000Z",
    )
    assert [(one.tool, one.rule, one.status, one.words) for one in found.rules] == [
        ("debugger", "Overfit", "IssuesFound", "at step 100"),
        ("profiler", "LowGPU", "InProgress", ""),
    ]
    assert not found.is_final
    assert found.mlflow is not None
    assert (found.mlflow.resource, found.mlflow.experiment_id, found.mlflow.run_id) == ("arn:server", "7", "abc")
    assert found.progress is not None
    assert (found.progress.step, found.progress.steps, found.progress.epoch, found.progress.epochs) == (3, 10, 1, 2)
    assert JobDetails.model_validate_json(found.to_json()) == found


def test_a_job_of_which_nothing_was_asked_has_no_details() -> None:
    assert job_details({"TrainingJobStatus": "InProgress"}) == JobDetails()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "0.5", None])
def test_a_metric_that_is_no_number_is_left_out_because_no_document_can_hold_it(value: Any) -> None:
    found = job_details({"FinalMetricDataList": [metric("broken", value), metric("loss", 1.0)]})
    assert [one.name for one in found.metrics] == ["loss"]
    Attempt(attempt=1, job="j", details=found).to_json()


def test_what_comes_from_outside_is_bounded() -> None:
    many = job_details(
        {
            "FinalMetricDataList": [metric(f"m{number}", 1.0) for number in range(500)],
            "DebugRuleEvaluationStatuses": [
                {
                    "RuleConfigurationName": "n" * 9_999,
                    "RuleEvaluationStatus": "s" * 999,
                    "StatusDetails": "d\n" * 9_999,
                }
            ]
            * 500,
            "MlflowDetails": {"MlflowExperimentId": "e" * 9_999, "MlflowRunId": "r" * 9_999},
            "MlflowConfig": {"MlflowResourceArn": "a" * 99_999},
        }
    )
    assert len(many.metrics) == METRICS_MAX
    assert len(many.to_json()) < 40_000
    long = job_details({"FinalMetricDataList": [metric("n" * 250 + str(number), 1.0) for number in range(40)]})
    assert sum(len(one.name) for one in long.metrics) <= 4_096


@pytest.mark.parametrize(
    "answer",
    [
        {"FinalMetricDataList": "x", "WarmPoolStatus": [], "DebugRuleEvaluationStatuses": [1], "MlflowDetails": "x"},
        {"TrainingTimeInSeconds": -1, "WarmPoolStatus": {"Status": 7}, "ProgressInfo": {}},
    ],
)
def test_an_answer_of_another_form_says_nothing(answer: dict[str, object]) -> None:
    assert job_details(answer) == JobDetails()


def test_a_state_that_a_newer_sagemaker_has_is_unknown_and_no_error() -> None:
    found = job_details({"WarmPoolStatus": {"Status": "Hibernating"}}).warm_pool
    assert found is not None
    assert found.state is PoolState.UNKNOWN


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({}, False),
        ({"spot": True}, True),
        ({"metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}]}, True),
        ({"metrics": {"cloudwatch": ["loss"]}}, True),
        ({"keep_alive_period_in_seconds": 60}, True),
        ({"keep_alive_period_in_seconds": 0}, False),
        ({"debug_rule_configurations": [RULE]}, True),
        ({"profiler_rule_configurations": [RULE]}, True),
        (
            {"mlflow_config": {"mlflow_resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/a"}},
            True,
        ),
    ],
)
def test_only_a_spec_that_asks_for_something_costs_a_call(fields: dict[str, Any], asks: bool) -> None:
    assert asks_for_details(parse_spec({**SPEC, **fields})) is asks


def test_the_longer_history_is_kept_and_of_two_as_long_the_newer_message() -> None:
    def attempt(*messages: str) -> Attempt:
        at = timestamps.text(AT)
        steps = (Transition(at=at, secondary="Starting", message=message) for message in messages)
        return Attempt(attempt=1, job="j", history=tuple(steps))

    assert [one.message for one in attempt("a").merged(attempt("b")).history] == ["b"]
    assert [one.message for one in attempt("a", "c").merged(attempt("b")).history] == ["a", "c"]
