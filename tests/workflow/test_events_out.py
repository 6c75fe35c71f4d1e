"""What the stack tells on its bus, heard by a queue that knows nothing of Muster."""

from __future__ import annotations

import json

import pytest

from muster.contract.run.run_events import EVENT_VERSION
from muster.local.faults import CallError, LostInstance
from tests.support.deployed import Deployed
from tests.support.listening import Listener
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def listener(deployed_stack: Deployed) -> Listener:
    return Listener(deployed_stack)


def test_a_run_that_lost_an_instance_is_told_from_start_to_end(stack, listener):
    stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
    run = stack.start(stack.gated("told", per="attempt"))
    stack.open_gate("told", 2)
    run.wait()
    started = listener.wait("Run Started", run=run.name)
    assert (started["replicas"], started["execution_arn"]) == (1, run.execution_arn)
    assert started["version"] == EVENT_VERSION
    assert listener.wait("Replica Launched", run=run.name, attempt=1)["job"] == run.job(0, 1)
    rerun = listener.wait("Replica Rerun", run=run.name)
    assert (rerun["rank"], rerun["attempt"], rerun["failure_class"]) == (0, 1, "infrastructure")
    assert "InternalServerError" in rerun["reason"]
    assert listener.wait("Replica Launched", run=run.name, attempt=2)
    ended = listener.wait("Run Succeeded", run=run.name)
    assert (ended["reason"], ended["reruns"]) == ("1 of 1 replicas succeeded", 1)
    assert ended["result"] == f"s3://{stack.bucket}/{run.layout.result}"


def test_the_loss_of_the_quorum_is_told_once_and_so_is_the_end(stack, listener):
    run = stack.start(stack.gated("quorum", exit_code=1, replicas=3))
    stack.open_gate("quorum")
    assert run.wait()["status"] == "FAILED"
    assert "replica" in listener.wait("Quorum Lost", run=run.name)["reason"]
    failed = listener.wait("Run Failed", run=run.name)
    assert failed["reason"] == run.result().reason
    # A copy would say so by its id; here there is none.
    assert len(listener.events("Quorum Lost", run=run.name)) == 1
    assert len(listener.events("Run Failed", run=run.name)) == 1


def test_a_cancelled_run_is_told_as_stopped(stack, listener):
    run = stack.start(stack.gated("cancelled"))
    run.wait_for_status(0, 1, "Training")
    stack.stepfunctions.stop_execution(executionArn=run.execution_arn)
    assert listener.wait("Run Stopped", run=run.name)["reason"] == "the execution was stopped"


def test_a_refused_spec_is_told_with_all_its_problems(stack, listener):
    run = stack.start({"replicas": "4", "trainer": "no colon"})
    run.wait()
    refused = listener.wait("Run Refused", request=run.execution_arn)
    assert refused["error"] == "Muster.SpecError"
    assert [problem.partition(":")[0] for problem in refused["problems"]] == ["replicas", "trainer"]


def test_a_bus_that_takes_nothing_delays_no_run(stack, listener):
    stack.cloud.faults.add(CallError(service="events", operation="PutEvents", count=None))
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"]})
    assert run.wait()["status"] == "SUCCEEDED"
    assert listener.events("Run Succeeded", run=run.name) == []


def test_people_are_told_in_words(stack):
    sqs, sns = stack.cloud.client("sqs"), stack.cloud.client("sns")
    queue = sqs.create_queue(QueueName="people")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    document = {"Version": "2012-10-17", "Statement": [{**policy, "Resource": arn}]}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(document)})
    sns.subscribe(TopicArn=stack.outputs["NotificationTopicArn"], Protocol="sqs", Endpoint=arn)
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "raise SystemExit(3)"]})
    run.wait()
    subjects: dict[str, str] = {}

    def told() -> bool:
        for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            body = json.loads(message["Body"])
            subjects[body["Subject"]] = body["Message"]
        return {f"Muster: {run.name} {end}" for end in ("failed", "is being stopped")} <= subjects.keys()

    wait_until("both messages to people", told)
    text = subjects[f"Muster: {run.name} failed"]
    assert text.startswith(f"{run.name} failed.\n\nReason: ")
    assert f"`muster result {run.name}`" in text
    # An alarm of the stack, as CloudWatch rings it, reaches the same people.
    cloudwatch = stack.cloud.client("cloudwatch")
    cloudwatch.set_alarm_state(AlarmName="Muster-run-failed", StateValue="ALARM", StateReason="one was greater than 0")
    wait_until("the alarm", lambda: told() and any("Muster-run-failed" in subject for subject in subjects))
