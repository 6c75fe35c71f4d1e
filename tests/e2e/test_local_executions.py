"""Executions on the embedded cloud: a failed function fails its task, and a stopped execution stops its children."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from tests.support.waiting import wait_until
from tests.support.workshop import Workshop

_TRUST = {
    "Effect": "Allow",
    "Principal": {"Service": ["states.amazonaws.com", "lambda.amazonaws.com"]},
    "Action": "sts:AssumeRole",
}


class Machines:
    """State machines of a workshop, and the queue to which their states write."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.client = workshop.cloud.client("stepfunctions")
        self.sqs = workshop.cloud.client("sqs")
        self.queue = self.sqs.create_queue(QueueName=workshop.name("queue"))["QueueUrl"]
        self.role = workshop.make_role([{"Effect": "Allow", "Action": "*", "Resource": "*"}], _TRUST)

    def start(self, start_at: str, states: dict[str, Any]) -> str:
        definition = json.dumps({"StartAt": start_at, "States": states})
        machine = self.client.create_state_machine(
            name=self.workshop.name("machine"), definition=definition, roleArn=self.role
        )
        return str(self.client.start_execution(stateMachineArn=machine["stateMachineArn"])["executionArn"])

    def message(self, text: Any) -> dict[str, Any]:
        return {"QueueUrl": self.queue, "MessageBody": text}

    def received(self) -> list[str]:
        answer = self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10)
        return [message["Body"] for message in answer.get("Messages", [])]

    def end(self, execution: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            shown: dict[str, Any] = self.client.describe_execution(executionArn=execution)
            return shown if shown["status"] != "RUNNING" else None

        return wait_until("the end of the execution", ended)


def make_function(machines: Machines, source: str) -> str:
    archive, name = io.BytesIO(), machines.workshop.name("function")
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("index.py", source)
    machines.workshop.cloud.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Handler="index.handler",
        Role=machines.role,
        Code={"ZipFile": archive.getvalue()},
    )
    return name


def test_a_function_that_fails_fails_the_task_that_waits_for_its_token(workshop: Workshop) -> None:
    machines = Machines(workshop)
    function = make_function(machines, "def handler(event, context):\n    raise RuntimeError('broken')\n")
    state = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
        "Parameters": {"FunctionName": function, "Payload": {"token.$": "$$.Task.Token"}},
        "End": True,
    }
    ended = machines.end(machines.start("Call", {"Call": state}))
    assert ended["status"] == "FAILED"
    assert "broken" in ended["cause"]


def test_a_stopped_execution_stops_its_children_and_stays_stopped(workshop: Workshop) -> None:
    machines = Machines(workshop)
    wait = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": machines.message({"token.$": "$$.Task.Token"}),
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "After"}],
        "Next": "After",
    }
    after = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage",
        "Parameters": machines.message("after"),
        "End": True,
    }
    children = {
        "Type": "Map",
        "MaxConcurrency": 2,
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "Wait",
            "States": {"Wait": wait, "After": after},
        },
        "End": True,
    }
    first = {"Type": "Pass", "Result": [1, 2], "Next": "Children"}
    execution = machines.start("First", {"First": first, "Children": children})
    tokens: list[str] = []

    def both_wait() -> bool:
        tokens.extend(json.loads(text)["token"] for text in machines.received())
        return len(tokens) == 2

    wait_until("both tokens", both_wait)
    machines.client.stop_execution(executionArn=execution, error="Stopped")
    run = machines.client.list_map_runs(executionArn=execution)["mapRuns"][0]["mapRunArn"]

    def counts() -> dict[str, int]:
        return dict(machines.client.describe_map_run(mapRunArn=run)["executionCounts"])

    wait_until("the end of the children", lambda: counts()["running"] == 0)
    assert machines.received() == []
    assert machines.client.describe_execution(executionArn=execution)["status"] == "ABORTED"
