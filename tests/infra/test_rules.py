"""The rules against events as AWS sends them: ours pass, what only looks like ours does not."""

import copy
import json
from pathlib import Path
from typing import Any

from moto.events.models import EventPattern

from muster.contract.aws.job_status import PASSING
from tests.infra.variants import Variant
from tests.support.template import Template, construct_name

EVENTS = Path(__file__).parent / "events"
SEEN = (
    *(("InProgress", name) for name in ("Pending", "Training", "Interrupted", "Restarting", "SomethingNew")),
    ("Stopping", "Stopping"),
    ("Completed", "Completed"),
    *(("Failed", name) for name in ("Failed", "Starting", "Downloading")),
    *(("Stopped", name) for name in ("MaxRuntimeExceeded", "Uploading")),
)
"""The statuses of a job, primary and secondary, that decide or are shown."""


def sample(name: str, **detail: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))
    return {**event, "detail": {**event["detail"], **detail}}


def job(**detail: str) -> dict[str, Any]:
    return sample("training_job_completed", **detail)


def rule(template: Template, name: str) -> dict[str, Any]:
    found = template.of_type("AWS::Events::Rule")
    return template.resolve(next(r["Properties"] for key, r in found.items() if construct_name(key) == name))


def matches(template: Template, name: str, event: dict[str, Any]) -> bool:
    pattern = rule(template, name)["EventPattern"]
    return bool(EventPattern.load(json.dumps(pattern)).matches_event(copy.deepcopy(event)))


def test_react_is_called_for_what_decides_about_a_job_of_ours_or_is_shown(template: Template) -> None:
    for status, secondary in SEEN:
        event = job(TrainingJobStatus=status, SecondaryStatus=secondary)
        assert matches(template, "React", event), (status, secondary)
    # The event of the next status reports these as well.
    for secondary in PASSING:
        for status in ("InProgress", "Stopping"):
            event = job(TrainingJobStatus=status, SecondaryStatus=secondary)
            assert not matches(template, "React", event), (status, secondary)
    for name in ("another-night-r3-a2", "mustering-night-r3-a2", "muster", "Muster-night-r3-a2"):
        assert not matches(template, "React", job(TrainingJobName=name)), name
    for change in ({"source": "muster.sagemaker"}, {"detail-type": "SageMaker Transform Job State Change"}):
        assert not matches(template, "React", {**job(), **change}), change


def test_stop_is_called_for_the_early_end_of_a_run_alone(template: Template) -> None:
    called = {"ABORTED": True, "FAILED": True, "TIMED_OUT": True}
    called |= {"RUNNING": False, "SUCCEEDED": False, "PENDING_REDRIVE": False}
    for status, wanted in called.items():
        assert matches(template, "Stop", sample("execution_aborted", status=status)) == wanted, status
    # Neither for a child nor for another state machine.
    for machine in ("Other", "Workflow/Replicas", "Workflow2"):
        arn = f"arn:aws:states:REGION:ACCOUNT:stateMachine:{machine}"
        assert not matches(template, "Stop", sample("execution_aborted", stateMachineArn=arn)), machine


def test_a_rule_retries_has_a_dead_letter_queue_and_may_call_its_function(template: Template) -> None:
    permissions = [template.resolve(p["Properties"]) for p in template.of_type("AWS::Lambda::Permission").values()]
    from_events = {p["FunctionName"]: p for p in permissions if p["Principal"] == "events.amazonaws.com"}
    for name in ("React", "Stop", "Sweep", "Start", "Notify"):
        [target] = rule(template, name)["Targets"]
        assert target["Arn"] == f"arn:aws:lambda:REGION:ACCOUNT:function:{name}"
        assert target["DeadLetterConfig"]["Arn"].endswith(":DeadLetters"), name
        assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 6 * 3600, name
        assert from_events[target["Arn"]]["SourceArn"], name


def test_schedules_call_the_sweep_and_start_with_the_spec_and_the_time(template: Template, variant: Variant) -> None:
    assert rule(template, "Sweep")["ScheduleExpression"] == "rate(6 hours)"
    nist = variant("Nist")
    rules = [nist.resolve(item["Properties"]) for item in nist.of_type("AWS::Events::Rule").values()]
    [nightly] = [item for item in rules if item.get("ScheduleExpression") == "cron(0 3 * * ? *)"]
    transformer = nightly["Targets"][0]["InputTransformer"]
    [(field, path)] = transformer["InputPathsMap"].items()
    assert path == "$.time"
    text = transformer["InputTemplate"]
    assert text.count("<") == 1, "EventBridge reads every <word> as a field"
    tick = json.loads(text.replace(f"<{field}>", '"2026-05-04T03:00:00Z"'))["schedule"]
    assert (tick["name"], tick["at"]) == ("nightly", "2026-05-04T03:00:00Z")
    assert json.loads(tick["spec"]) == {"replicas": 1, "entrypoint": ["echo", "<time>"]}
