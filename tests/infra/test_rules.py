"""The rules against events as AWS sends them: ours pass, what only looks like ours does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from moto.events.models import EventPattern

from muster.contract.aws.job_status import PASSING
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
        ("InProgress", "Pending"),
        ("InProgress", "Training"),
        ("InProgress", "Interrupted"),
        ("InProgress", "Restarting"),
        ("InProgress", "SomethingNew"),
        ("Stopping", "Stopping"),
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Stopped", "MaxRuntimeExceeded"),
        ("Failed", "Starting"),
        ("Failed", "Downloading"),
        ("Stopped", "Uploading"),
    ],
)
def test_what_decides_about_a_job_of_ours_or_is_shown_calls_react(
    template: Template, status: str, secondary: str
) -> None:
    event = sample("training_job_completed", TrainingJobStatus=status, SecondaryStatus=secondary)
    assert matches(template, "React", event)


@pytest.mark.parametrize("status", ["InProgress", "Stopping"])
@pytest.mark.parametrize("secondary", PASSING)
def test_a_status_that_the_event_of_the_next_one_reports_as_well_calls_nothing(
    template: Template, status: str, secondary: str
) -> None:
    event = sample("training_job_completed", TrainingJobStatus=status, SecondaryStatus=secondary)
    assert not matches(template, "React", event)


@pytest.mark.parametrize("name", ["another-night-r3-a2", "mustering-night-r3-a2", "muster", "Muster-night-r3-a2"])
def test_a_foreign_job_calls_nothing(template: Template, name: str) -> None:
    assert not matches(template, "React", sample("training_job_completed", TrainingJobName=name))


@pytest.mark.parametrize(
    "change", [{"source": "muster.sagemaker"}, {"detail-type": "SageMaker Transform Job State Change"}]
)
def test_an_event_of_another_kind_calls_nothing(template: Template, change: dict[str, str]) -> None:
    assert not matches(template, "React", {**sample("training_job_completed"), **change})


@pytest.mark.parametrize("status", ["ABORTED", "FAILED", "TIMED_OUT"])
def test_the_early_end_of_a_run_calls_stop(template: Template, status: str) -> None:
    assert matches(template, "Stop", sample("execution_aborted", status=status))


@pytest.mark.parametrize("status", ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE"])
def test_other_statuses_of_a_run_do_not(template: Template, status: str) -> None:
    assert not matches(template, "Stop", sample("execution_aborted", status=status))


@pytest.mark.parametrize("machine", ["Other", "Workflow/Replicas", "Workflow2"])
def test_neither_a_child_nor_another_state_machine_calls_stop(template: Template, machine: str) -> None:
    arn = f"arn:aws:states:REGION:ACCOUNT:stateMachine:{machine}"
    assert not matches(template, "Stop", sample("execution_aborted", stateMachineArn=arn))


@pytest.mark.parametrize("name", ["React", "Stop", "Sweep", "Start", "Notify"])
def test_a_rule_retries_has_a_dead_letter_queue_and_may_call_its_function(template: Template, name: str) -> None:
    [target] = rule(template, name)["Targets"]
    assert target["Arn"] == f"arn:aws:lambda:REGION:ACCOUNT:function:{name}"
    assert target["DeadLetterConfig"]["Arn"].endswith(":DeadLetters")
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 6 * 3600
    permissions = [template.resolve(p["Properties"]) for p in template.of_type("AWS::Lambda::Permission").values()]
    from_events = [p for p in permissions if p["Principal"] == "events.amazonaws.com"]
    [permission] = [p for p in from_events if p["FunctionName"] == target["Arn"]]
    assert permission["SourceArn"]


def test_by_default_the_sweep_runs_every_six_hours(template: Template) -> None:
    assert rule(template, "Sweep")["ScheduleExpression"] == "rate(6 hours)"
