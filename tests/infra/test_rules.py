"""The rules against events as AWS sends them: ours pass, what only looks like ours does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from moto.events.models import EventPattern

from tests.support.template import Template, construct_name

EVENTS = Path(__file__).parent / "events"


def sample(name: str, **detail: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))
    return {**event, "detail": {**event["detail"], **detail}}


def rule(template: Template, name: str) -> dict[str, Any]:
    found = template.of_type("AWS::Events::Rule")
    return template.resolve(next(r["Properties"] for key, r in found.items() if construct_name(key) == name))


def matches(template: Template, name: str, event: dict[str, Any]) -> bool:
    pattern = rule(template, name)["EventPattern"]
    return bool(EventPattern.load(json.dumps(pattern)).matches_event(copy.deepcopy(event)))


@pytest.mark.parametrize(
    ("status", "secondary"),
    [
        ("InProgress", "Training"),
        ("InProgress", "Interrupted"),
        ("InProgress", "Restarting"),
        ("InProgress", "SomethingNew"),
        ("Stopping", "Stopping"),
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Stopped", "MaxRuntimeExceeded"),
        ("Failed", "Starting"),
    ],
)
def test_what_decides_about_a_job_of_ours_wakes_react(template: Template, status: str, secondary: str) -> None:
    event = sample("training_job_completed", TrainingJobStatus=status, SecondaryStatus=secondary)
    assert matches(template, "JobEvents", event)


@pytest.mark.parametrize("secondary", ["Starting", "Pending", "Downloading", "DownloadingTrainingImage", "Uploading"])
def test_what_a_job_passes_through_wakes_nobody(template: Template, secondary: str) -> None:
    event = sample("training_job_completed", TrainingJobStatus="InProgress", SecondaryStatus=secondary)
    assert not matches(template, "JobEvents", event)


@pytest.mark.parametrize("name", ["another-night-r3-a2", "mustering-night-r3-a2", "muster", "Muster-night-r3-a2"])
def test_a_foreign_job_wakes_nobody(template: Template, name: str) -> None:
    assert not matches(template, "JobEvents", sample("training_job_completed", TrainingJobName=name))


@pytest.mark.parametrize(
    "change", [{"source": "muster.sagemaker"}, {"detail-type": "SageMaker Transform Job State Change"}]
)
def test_an_event_of_another_kind_wakes_nobody(template: Template, change: dict[str, str]) -> None:
    assert not matches(template, "JobEvents", {**sample("training_job_completed"), **change})


@pytest.mark.parametrize("status", ["ABORTED", "FAILED", "TIMED_OUT"])
def test_the_early_end_of_a_run_wakes_stop(template: Template, status: str) -> None:
    assert matches(template, "EarlyEnds", sample("execution_aborted", status=status))


@pytest.mark.parametrize("status", ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE"])
def test_other_statuses_of_a_run_do_not(template: Template, status: str) -> None:
    assert not matches(template, "EarlyEnds", sample("execution_aborted", status=status))


@pytest.mark.parametrize("machine", ["Other", "Workflow/Replicas", "Workflow2"])
def test_neither_a_child_nor_another_state_machine_wakes_stop(template: Template, machine: str) -> None:
    arn = f"arn:aws:states:REGION:ACCOUNT:stateMachine:{machine}"
    assert not matches(template, "EarlyEnds", sample("execution_aborted", stateMachineArn=arn))


@pytest.mark.parametrize(
    ("name", "function"),
    [("JobEvents", "React"), ("EarlyEnds", "Stop"), ("Sweep", "Sweep"), ("Start", "Start"), ("Notify", "Notify")],
)
def test_a_rule_has_patience_a_dead_letter_queue_and_the_right_to_call(
    template: Template, name: str, function: str
) -> None:
    [target] = rule(template, name)["Targets"]
    assert target["Arn"] == f"arn:aws:lambda:REGION:ACCOUNT:function:{function}"
    assert target["DeadLetterConfig"]["Arn"].endswith(":DeadLetters")
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 6 * 3600
    permissions = [template.resolve(p["Properties"]) for p in template.of_type("AWS::Lambda::Permission").values()]
    from_events = [p for p in permissions if p["Principal"] == "events.amazonaws.com"]
    [permission] = [p for p in from_events if p["FunctionName"] == target["Arn"]]
    assert permission["SourceArn"]


def test_the_sweep_comes_every_six_hours_unless_told_otherwise(template: Template) -> None:
    assert rule(template, "Sweep")["ScheduleExpression"] == "rate(6 hours)"
