"""What DescribeTrainingJob says of a job beside its status, read into bounded documents."""

import math
from datetime import UTC, datetime
from typing import Any

from muster.contract import timestamps
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.job_details import METRICS_MAX, JobDetails, PoolState, asks_for_details, job_details
from muster.contract.spec.spec_reader import parse_spec

AT = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
END = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SPEC = {"replicas": 1, "trainer": "a:b", "image": "i", "instance_type": "ml.m5.large"}
RULE = {"rule_configuration_name": "Overfit", "rule_evaluator_image": "i"}


def metric(name: str, value: Any) -> dict[str, object]:
    return {"MetricName": name, "Value": value, "Timestamp": AT}


def test_everything_that_sagemaker_reports_is_read() -> None:
    overfit = {
        "RuleConfigurationName": "Overfit",
        "RuleEvaluationStatus": "IssuesFound",
        "StatusDetails": "at step 100",
        "LastModifiedTime": END,
    }
    low = {"RuleConfigurationName": "LowGPU", "RuleEvaluationStatus": "InProgress"}
    found = job_details(
        {
            "TrainingTimeInSeconds": 500,
            "TrainingEndTime": END,
            "ResourceConfig": {"KeepAlivePeriodInSeconds": 1_800},
            "WarmPoolStatus": {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 12},
            "FinalMetricDataList": [metric("loss", 0.25)],
            "DebugRuleEvaluationStatuses": [overfit],
            "ProfilerRuleEvaluationStatuses": [low],
            "MlflowConfig": {"MlflowResourceArn": "arn:server"},
            "MlflowDetails": {"MlflowExperimentId": "7", "MlflowRunId": "abc"},
            "ProgressInfo": {"CurrentStep": 3, "TotalStepCountPerEpoch": 10, "CurrentEpoch": 1, "MaxEpoch": 2},
        }
    )
    rules = [
        {"tool": "debugger", "rule": "Overfit", "status": "IssuesFound", "words": "at step 100"},
        {"tool": "profiler", "rule": "LowGPU", "status": "InProgress", "words": ""},
    ]
    shown = found.model_dump(mode="json")
    assert shown["training_seconds"] == 500
    assert shown["metrics"] == [{"name": "loss", "value": 0.25, "at": "2026-11-22T10:00:00.000Z"}]
    pool = {"state": "Available", "kept_seconds": 12, "until": "2026-11-22T12:30:00.000Z"}
    assert pool.items() <= shown["warm_pool"].items()
    assert [expected.items() <= rule.items() for expected, rule in zip(rules, shown["rules"], strict=True)] == [
        True
    ] * 2
    assert {"resource": "arn:server", "experiment_id": "7", "run_id": "abc"}.items() <= shown["mlflow"].items()
    assert {"step": 3, "steps": 10, "epoch": 1, "epochs": 2}.items() <= shown["progress"].items()
    assert not found.is_final


def test_a_metric_that_is_no_number_is_left_out_because_no_document_can_hold_it() -> None:
    for value in (math.nan, math.inf, -math.inf, True, "0.5", None):
        found = job_details({"FinalMetricDataList": [metric("broken", value), metric("loss", 1.0)]})
        assert [one.name for one in found.metrics] == ["loss"], value
        Attempt(attempt=1, job="j", details=found).to_json()


def test_what_comes_from_outside_is_bounded() -> None:
    rule = {"RuleConfigurationName": "n" * 9_999, "RuleEvaluationStatus": "s" * 999, "StatusDetails": "d\n" * 9_999}
    many = job_details(
        {
            "FinalMetricDataList": [metric(f"m{number}", 1.0) for number in range(500)],
            "DebugRuleEvaluationStatuses": [rule] * 500,
            "MlflowDetails": {"MlflowExperimentId": "e" * 9_999, "MlflowRunId": "r" * 9_999},
            "MlflowConfig": {"MlflowResourceArn": "a" * 99_999},
        }
    )
    assert len(many.metrics) == METRICS_MAX
    assert len(many.to_json()) < 40_000
    long = job_details({"FinalMetricDataList": [metric("n" * 250 + str(number), 1.0) for number in range(40)]})
    assert sum(len(one.name) for one in long.metrics) <= 4_096


def test_an_answer_of_another_form_says_nothing() -> None:
    answers: list[dict[str, object]] = [
        {"TrainingJobStatus": "InProgress"},
        {"FinalMetricDataList": "x", "WarmPoolStatus": [], "DebugRuleEvaluationStatuses": [1], "MlflowDetails": "x"},
        {"TrainingTimeInSeconds": -1, "WarmPoolStatus": {"Status": 7}, "ProgressInfo": {}},
    ]
    assert [job_details(answer) for answer in answers] == [JobDetails()] * 3
    # A state that a newer SageMaker has is none either.
    found = job_details({"WarmPoolStatus": {"Status": "Hibernating"}}).warm_pool
    assert found is not None
    assert found.state is PoolState.UNKNOWN


def test_only_a_spec_that_asks_for_something_costs_a_call() -> None:
    asking: list[dict[str, Any]] = [
        {"spot": True},
        {"metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}]},
        {"metrics": {"cloudwatch": ["loss"]}},
        {"keep_alive_period_in_seconds": 60},
        {"debug_rule_configurations": [RULE]},
        {"profiler_rule_configurations": [RULE]},
        {"mlflow_config": {"mlflow_resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/a"}},
    ]
    assert [fields for fields in asking if not asks_for_details(parse_spec({**SPEC, **fields}))] == []
    assert not asks_for_details(parse_spec(SPEC))
    assert not asks_for_details(parse_spec({**SPEC, "keep_alive_period_in_seconds": 0}))


def test_the_longer_history_is_kept_and_of_two_as_long_the_newer_message() -> None:
    def attempt(*messages: str) -> Attempt:
        at = timestamps.text(AT)
        steps = (Transition(at=at, secondary="Starting", message=message) for message in messages)
        return Attempt(attempt=1, job="j", history=tuple(steps))

    assert [one.message for one in attempt("a").merged(attempt("b")).history] == ["b"]
    assert [one.message for one in attempt("a", "c").merged(attempt("b")).history] == ["a", "c"]
