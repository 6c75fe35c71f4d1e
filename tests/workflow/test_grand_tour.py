"""Some runs on the deployed stack, by which nearly all of its wiring is used; and the ledger of what that is."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any

import pytest

from muster import Muster
from muster.client.aws.reported import Execution
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.run.run_events import EVENT_VERSION
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed, Run
from tests.support.template import Template
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to
from tests.workflow.exceptions import RIGHTS_BY_CHANCE, RIGHTS_NOT_USED, TRIGGERS_NOT_SET_OFF, WAYS_NOT_TAKEN
from tests.workflow.ledger import (
    Right,
    declared_rights,
    declared_triggers,
    declared_ways,
    rights_used,
    ways_taken,
)
from tests.workflow.tour import Tour, histories

WHAT_TO_DO = "use it in tests/workflow/tour.py, or say in tests/workflow/exceptions.py why not"
SUCCEEDED, FAILED, STOPPED = ReplicaOutcome.SUCCEEDED, ReplicaOutcome.FAILED, ReplicaOutcome.STOPPED


@pytest.fixture(scope="module")
def tour(deployed_stack: Deployed, commands: CommandServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """The tour, taken once."""
    deployed_stack.cloud.faults.clear()
    deployed_stack.letters.purge()
    deployed_stack.cloud.calls.reset()
    tour = Tour(deployed_stack, commands, tmp_path_factory.mktemp("tour"))
    try:
        tour.take()
        yield tour
    finally:
        tour.leave()


@pytest.fixture(scope="module")
def template(tour: Tour) -> Template:
    """The template of the deployed stack."""
    formation = tour.stack.cloud.client("cloudformation")
    body = formation.get_template(StackName="Muster")["TemplateBody"]
    return Template(json.loads(body) if isinstance(body, str) else body)


def classes(run: Run) -> list[list[FailureClass | None]]:
    """The failure classes of each replica's attempts."""
    return [[attempt.failure_class for attempt in replica.attempts] for replica in run.result().replicas]


# --- the ledger ---------------------------------------------------------------------------------------


def test_every_way_of_the_workflow_is_taken_or_has_a_reason(tour: Tour) -> None:
    machine = json.loads(
        tour.stack.stepfunctions.describe_state_machine(stateMachineArn=tour.stack.machine)["definition"]
    )
    child = machine["States"]["Train the replicas"]["ItemProcessor"]
    taken = {
        way
        for run in tour.runs
        for number, history in enumerate(histories(run))
        for way in ways_taken(child if number else machine, history)
    }
    declared = {str(way) for way in declared_ways(machine)}
    assert {str(way) for way in taken} <= declared
    assert declared - {str(way) for way in taken} == WAYS_NOT_TAKEN.keys(), WHAT_TO_DO


def test_every_right_is_used_or_has_a_reason(tour: Tour, template: Template) -> None:
    pages = tour.stack.cloud.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName="Muster")
    physical = {
        item["LogicalResourceId"]: item["PhysicalResourceId"]
        for page in pages
        for item in page["StackResourceSummaries"]
    }
    declared = declared_rights(template)
    unused = declared - rights_used(template, physical, tour.stack.cloud.calls.report())
    never, sometimes = (
        {Right(role, action) for action, (roles, _) in table.items() for role in roles.split()}
        for table in (RIGHTS_NOT_USED, RIGHTS_BY_CHANCE)
    )
    assert unused - sometimes == never, WHAT_TO_DO
    assert sometimes <= declared


def test_every_trigger_is_set_off_or_has_a_reason(tour: Tour, template: Template) -> None:
    """Each of these was seen by what only it can have caused."""
    callers = {call.caller for call in tour.stack.cloud.calls.report()}
    seen = {
        "ReactJobEventsRule": any("ReactHandler" in caller for caller in callers),
        "StopEarlyEndsRule": tour.cancelled.result().verdict is Verdict.STOPPED,
        "StartRequestsRule": tour.late.describe()["status"] == "FAILED",
        "StartHandlerFunctionTopic": tour.endings.describe()["status"] == "SUCCEEDED",
        "ScaleRequestsRule": tour.elastic.result().replicas[1].outcome is ReplicaOutcome.PARKED,
        "NotifyEndsRule": bool(tour.people.wait(f"Muster: {tour.broken.name} failed")),
        "Healthrunfailed": bool(alarm(tour, "Muster-run-failed")),
        # An event of a job whose record is damaged fails three times.
        "ReactHandlerFunctionEventInvokeConfig": bool(
            wait_until("the dead letters", lambda: tour.stack.letters.about(tour.cancelled.job(0)))
        ),
    }
    assert seen == dict.fromkeys(seen, True)
    assert declared_triggers(template) == {*seen, *TRIGGERS_NOT_SET_OFF}, WHAT_TO_DO


# --- the runs -----------------------------------------------------------------------------------------


def test_replicas_meet_a_fault_each_and_the_run_succeeds_without_two_of_them(tour: Tour) -> None:
    run, ended = tour.whole, tour.whole.describe()
    assert ended["status"] == "SUCCEEDED"
    infrastructure, capacity = FailureClass.INFRASTRUCTURE, FailureClass.CAPACITY
    lost, absent, throttled, refused, damaged, again = classes(run)
    assert (lost, absent, throttled) == ([infrastructure, None], [capacity, None], [None])
    assert (refused, damaged, again) == ([FailureClass.UNKNOWN], [], [infrastructure, None])
    outcomes = [replica.outcome for replica in run.result().replicas]
    assert outcomes == [SUCCEEDED, SUCCEEDED, SUCCEEDED, FAILED, ReplicaOutcome.UNKNOWN, SUCCEEDED]
    first, second = run.result().replicas[1].attempts
    waited = datetime.fromisoformat(second.launched_at or "") - datetime.fromisoformat(first.ended_at or "")
    assert waited.total_seconds() >= 3
    jobs = {"r0-a1": "Failed", "r0-a2": "Completed", "r1-a1": "Failed", "r1-a2": "Completed", "r2-a1": "Completed"}
    assert run.statuses() == {**jobs, "r5-a1": "Failed", "r5-a2": "Completed"}


def test_a_job_has_what_the_stack_adds_to_the_spec(tour: Tour) -> None:
    run = tour.whole
    plan = json.loads(run.document(run.layout.plan) or b"")["spec"]
    job = tour.stack.sagemaker.describe_training_job(TrainingJobName=run.job())
    assert job["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1", "subnet-2"]}
    assert job["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"
    assert job["ResourceConfig"]["VolumeKmsKeyId"] == job["OutputDataConfig"]["KmsKeyId"] == plan["volume_kms_key_id"]
    tags = {
        item["Key"]: item["Value"] for item in tour.stack.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    }
    assert (tags["team"], tags["stage"]) == ("research", "tour")


def test_an_execution_that_succeeded_says_what_came_of_it_and_where(tour: Tour) -> None:
    run, stack = tour.whole, tour.stack
    output = json.loads(run.describe()["output"])
    assert (output["verdict"], output["reason"]) == ("succeeded", "4 of 6 replicas succeeded")
    assert (output["replicas"], output["attempts"], output["reruns"]) == (6, 8, 3)
    assert output["result"] == f"s3://{stack.bucket}/{run.layout.result}"
    assert output["page"] == f"s3://{stack.bucket}/{run.layout.page}"
    assert b'<dd id="verdict"' in (run.document(run.layout.page) or b"")


def test_a_cancelled_run_is_stopped_also_where_a_record_is_damaged(tour: Tour) -> None:
    run, result = tour.cancelled, tour.cancelled.result()
    assert (result.verdict, result.reason.partition(":")[0]) == (Verdict.STOPPED, "the execution was stopped")
    assert [replica.outcome for replica in result.replicas] == [ReplicaOutcome.UNKNOWN, STOPPED]
    assert classes(run)[1] == [FailureClass.STOPPED_BY_MUSTER]
    assert run.statuses() == {"r0-a1": "Stopped", "r1-a1": "Stopped"}
    damaged = f"s3://{tour.stack.bucket}/{run.layout.record(0)} cannot be read"
    errors = wait_until("the dead letters", lambda: tour.stack.letters.about(run.job(0)))
    assert [error for error in errors if not error.startswith(damaged)] == []


def test_a_run_waits_in_the_queue_and_is_settled_by_the_sweep(tour: Tour) -> None:
    run = tour.queued
    assert sorted(tour.behind) == [tour.cancelled.name, tour.whole.name]
    assert (tour.swept["settled"], tour.swept["errors"]) == ([run.name], [])
    assert (run.result().verdict, run.result().reason) == (Verdict.STOPPED, "the execution was stopped")
    assert run.statuses() == {"r0-a1": "Stopped"}


def test_a_folder_with_a_requirement_runs_on_a_stock_image(tour: Tour) -> None:
    run = tour.queued
    lines = tour.stack.cloud.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=run.job()
    )["events"]
    assert "delivered: helper 1.0 False" in [line["message"].strip() for line in lines]
    uri = json.loads(run.document(run.layout.plan) or b"")["spec"]["source_dir"]
    assert uri.startswith(f"s3://{tour.stack.bucket}/source/")


def test_a_run_whose_gate_stays_shut_is_stopped_by_its_timer(tour: Tour) -> None:
    run, ended = tour.late, tour.late.describe()
    why, _, where = ended["cause"].partition("\n\n")
    assert (ended["status"], ended["error"]) == ("FAILED", "Muster.RunFailed")
    assert re.fullmatch(r"launch gate: only \d of the required 2 replicas were seen training after 5 s", why)
    for place in (run.layout.page, run.layout.result, f"muster continue {run.name}"):
        assert place in where
    assert set(run.statuses().values()) <= {"Stopped"}
    # The timer is gone once it has fired, or with its run.
    names = [item["Name"] for item in tour.stack.cloud.client("scheduler").list_schedules()["Schedules"]]
    assert not [name for name in names if run.name in name]


def test_a_run_that_loses_its_quorum_is_continued_from_its_last_round(
    tour: Tour, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, stack = tour.broken, tour.continuation, tour.stack
    assert (first.describe()["status"], second.describe()["status"]) == ("FAILED", "SUCCEEDED")
    assert first.result().verdict is Verdict.FAILED
    lines = [line for replica in first.result().replicas for attempt in replica.attempts for line in attempt.last_lines]
    assert any(line.startswith("ValueError: the data of round") for line in lines)
    found = stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix=first.layout.commits)["Contents"]
    commits = [json.loads(first.document(item["Key"]) or b"") for item in found]
    rounds = {commit["round"]: {member["attempt"] for member in commit["members"]} for commit in commits}
    last = max(number for number, attempts in rounds.items() if attempts == {1})
    assert last >= 3
    # Each round once, and no replica of the first run takes part in those of the second.
    assert rounds == {number: {1} if number <= last else {2} for number in range(1, 7)}
    assert second.result().parameters_identical
    for replica in second.result().replicas:
        assert (replica.round, replica.metrics["first"]) == (6, last + 1)
    turn_to(monkeypatch, stack.cloud)
    parent, child = (Muster().run(run.name).status() for run in (first, second))
    assert (parent.continued_by, child.parent) == (second.name, first.name)
    # What their replicas exchanged, and their records, outlive the objects that expire.
    kept = ("/rendezvous/", "/control/", "/checkpoints/", "/output/")
    assert [key for key in tour.expired if any(part in key for part in kept)] == []


def test_how_a_replica_ended_is_told_and_decides_what_follows(tour: Tour) -> None:
    assert tour.endings.describe()["status"] == "SUCCEEDED"
    infrastructure, user_code = FailureClass.INFRASTRUCTURE, FailureClass.USER_CODE
    assert classes(tour.endings) == [[infrastructure, None], [infrastructure, None], [user_code], [user_code]]
    fenced, saved, memory, killed = (replica.attempts[0].reason for replica in tour.endings.result().replicas)
    assert "[fenced] Attempt 1, incarnation 1 of rank 0" in fenced
    assert "[saved]" in saved
    # SageMaker cuts the reason, and with it the exit code, off the end.
    assert memory.startswith("AlgorithmError: [out-of-memory]")
    assert "exit code" not in memory
    assert "out of memory" in killed


def test_a_broken_spec_is_refused_in_the_console_and_in_the_inbox(tour: Tour) -> None:
    run, ended = tour.refused, tour.refused.describe()
    assert (ended["status"], ended["error"]) == ("FAILED", "Muster.SpecError")
    for problem in ("replicas: found '4'", "trainer: found 'no colon'"):
        assert problem in ended["cause"]
        assert problem in tour.complaint.decode()
    assert run.document(run.layout.plan) is None
    # The complaint goes once the spec is right.
    wait_until("the complaint's end", lambda: run.document(f"{tour.spec_key}.error.txt") is None)


def test_an_error_of_muster_itself_is_told_as_such(tour: Tour) -> None:
    ended: Any = tour.doomed.describe()
    assert ended["status"] == "FAILED"
    assert ended["cause"].startswith("Muster itself has failed, not the training.")
    assert "AccessDenied" in ended["cause"]
    assert "Traceback" not in (Execution.from_description(ended).cause or "")
    assert tour.doomed.statuses() == {}


# --- what is told -------------------------------------------------------------------------------------


def test_the_bus_tells_of_each_run_from_its_start_to_its_end(tour: Tour) -> None:
    whole, broken, bus = tour.whole, tour.broken, tour.bus
    started = bus.wait("Run Started", run=whole.name)
    assert (started["replicas"], started["execution_arn"]) == (6, whole.execution_arn)
    assert started["version"] == EVENT_VERSION
    assert bus.wait("Replica Launched", run=whole.name, rank=0, attempt=2)["job"] == whole.job(0, 2)
    rerun = bus.wait("Replica Rerun", run=whole.name, rank=0)
    assert (rerun["attempt"], rerun["failure_class"]) == (1, "infrastructure")
    assert bus.wait("Run Succeeded", run=whole.name)["result"] == f"s3://{tour.stack.bucket}/{whole.layout.result}"
    assert bus.wait("Run Stopped", run=tour.cancelled.name)["reason"] == tour.cancelled.result().reason
    assert bus.wait("Run Failed", run=broken.name)["reason"] == broken.result().reason
    assert bus.wait("Run Continued", run=broken.name)["continued_by"] == tour.continuation.name
    assert bus.wait("Run Started", run=tour.continuation.name)["parent"] == broken.name
    for kind in ("Quorum Lost", "Run Failed"):
        assert len(bus.events(kind, run=broken.name)) == 1, kind
    assert bus.wait("Run Refused", request=tour.refused.execution_arn)["error"] == "Muster.SpecError"
    assert bus.wait("Run Refused", request=f"s3://{tour.stack.bucket}/{tour.spec_key}")["problems"]
    assert bus.wait("Run Refused", error="Muster.RunNameTakenError")


def test_people_are_told_in_words(tour: Tour) -> None:
    name = tour.broken.name
    text = tour.people.wait(f"Muster: {name} failed")
    assert text.startswith(f"{name} failed.\n\nReason: ")
    assert f"`muster result {name}`" in text
    assert tour.people.wait(f"Muster: {name} is being stopped")


def test_what_the_alarm_of_reruns_reads_is_a_line_in_the_log_of_a_function(tour: Tour) -> None:
    def measured() -> bool:
        lines = chain.from_iterable(function_log(tour.stack, name) for name in ("React", "Attempt"))
        found = [json.loads(line) for line in lines if "RerunsWithinHour" in line]
        return any((line["service"], line["RerunsWithinHour"]) == ("muster", [1.0]) for line in found)

    wait_until("the measure", measured)


def function_log(stack: Deployed, function: str) -> list[str]:
    settings = stack.functions.get_function_configuration(FunctionName=stack.function_name(function))
    pages = stack.cloud.client("logs").get_paginator("filter_log_events")
    found = pages.paginate(logGroupName=settings["LoggingConfig"]["LogGroup"])
    return [event["message"] for page in found for event in page["events"]]


def alarm(tour: Tour, name: str) -> str:
    """What people are told when CloudWatch rings an alarm of the stack."""
    cloudwatch = tour.stack.cloud.client("cloudwatch")
    cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="one was greater than 0")
    return tour.people.wait(name)
