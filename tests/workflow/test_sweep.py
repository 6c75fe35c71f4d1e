"""What is lost is found: runs whose end nobody saw, jobs that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from muster import Muster
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Plan
from muster.contract.run.result import Verdict
from tests.support.workshop import Workshop, turn_to

NOW = {"young_seconds": 0}


@contextmanager
def silenced(stack, rule: str) -> Iterator[None]:
    """No event passes through the rule of this construct."""
    events = stack.cloud.client("events")
    [name] = [item["Name"] for item in events.list_rules()["Rules"] if f"-{rule}" in item["Name"]]
    events.disable_rule(Name=name)
    try:
        yield
    finally:
        events.enable_rule(Name=name)


def test_a_run_whose_end_nobody_saw_is_settled_by_the_sweep(stack):
    run = stack.start(stack.gated("unseen"))
    run.wait_for_status(0, 1, "Training")
    with silenced(stack, "StopEarlyEnds"):
        stack.stepfunctions.stop_execution(executionArn=run.execution_arn)
        swept = stack.invoke("Sweep", NOW)
    # Of another test a run may be there whose jobs are still being stopped.
    assert run.name in swept["settled"]
    assert swept["errors"] == []
    assert (run.result().verdict, run.result().reason) == (Verdict.STOPPED, "the execution was stopped")
    assert run.statuses() == {"r0-a1": "Stopped"}
    assert run.name not in stack.invoke("Sweep", NOW)["settled"]


def test_a_job_that_outlived_its_run_is_seen_and_stopped_and_no_other(stack, monkeypatch):
    live = stack.start(stack.gated("live"))
    live.wait_for_status(0, 1, "Training")
    over = stack.start(stack.gated("over", per="attempt"))
    stack.open_gate("over", 1)
    over.wait()
    request = training_job_request(Plan.from_json(over.document(over.layout.plan), "plan"), 0, 2)
    # Nobody gives these jobs session tags, without which the stack's role reaches no run's objects.
    request["RoleArn"] = Workshop(stack.cloud).role
    stack.sagemaker.create_training_job(**request)
    foreign = over.job(0, 3)
    stack.sagemaker.create_training_job(**{**request, "TrainingJobName": foreign})
    assert stack.invoke("Sweep", {})["stopped"] == [], "the execution of a young job may not be listed yet"
    turn_to(monkeypatch, stack.cloud)
    seen = Muster().doctor(young_seconds=0)
    assert (seen.orphans, seen.foreign) == ((over.job(0, 2),), (foreign,))
    swept = stack.invoke("Sweep", NOW)
    assert (swept["stopped"], swept["foreign"], swept["errors"]) == ([over.job(0, 2)], [foreign], [])
    over.wait_for_status(0, 2, JobStatus.STOPPED)
    assert over.statuses()["r0-a3"] == "InProgress"
    assert live.statuses() == {"r0-a1": "InProgress"}
    stack.open_gate("live")
    assert live.wait()["status"] == "SUCCEEDED"
