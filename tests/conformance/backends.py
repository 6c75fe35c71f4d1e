"""Two clouds behind one face: what a scenario needs of them beside their clients."""

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from tests.memory import ACCOUNT, REGION, MemoryCloud
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop

_ENDS = {"Completed", "Failed", "Stopped"}
REASON = "AlgorithmError: broken, exit code: 7"
"""Why a job of the fate FAILS has failed."""


class Fate(StrEnum):
    """What a job's program does."""

    COMPLETES = "completes"
    FAILS = "fails"
    TRAINS_ON = "trains on until it is stopped"


class Backend(ABC):
    """A cloud with a bucket, a role for jobs and a state machine whose executions wait on one task token."""

    bucket: str
    role: str
    machine_arn: str

    def __init__(self) -> None:
        self._names = itertools.count(1)

    @abstractmethod
    def client(self, service: str) -> Any:
        """A client of a service that tries every call once."""

    @abstractmethod
    def start_job(self, fate: Fate, **changes: Any) -> str:
        """Create a job; `changes` replace members of the request. Its name."""

    @abstractmethod
    def train(self, job: str) -> None:
        """See a job come as far as Training."""

    @abstractmethod
    def end_job(self, job: str) -> dict[str, Any]:
        """See a job reach its end; its description."""

    @abstractmethod
    def events(self, resource: str, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The events about a resource, in order, up to the first for which `last` holds."""

    @abstractmethod
    def wait_on_token(self, execution: str) -> str:
        """The task token that a running execution waits on."""

    @abstractmethod
    def end_execution(self, execution: str, token: str) -> None:
        """See an execution that got an answer through its token reach its end."""

    @abstractmethod
    def make_topic(self) -> str:
        """A topic's ARN."""

    def name(self, stem: str) -> str:
        """A fresh name."""
        return f"conformance-{stem}-{next(self._names)}"

    def request(self, **changes: Any) -> dict[str, Any]:
        """A CreateTrainingJob request."""
        request: dict[str, Any] = {
            "TrainingJobName": self.name("job"),
            "RoleArn": self.role,
            "AlgorithmSpecification": {"TrainingImage": "muster-local/python:test", "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/output"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "Environment": {"SOME": "value"},
            "Tags": [{"Key": "run", "Value": "one"}],
        }
        return {**request, **changes}

    def start_execution(self, document: str = "{}", name: str | None = None) -> tuple[str, str]:
        """Start an execution; its name and ARN."""
        name = name or self.name("run")
        started = self.client("stepfunctions").start_execution(
            stateMachineArn=self.machine_arn, name=name, input=document
        )
        return name, started["executionArn"]


class MemoryBackend(Backend):
    """The AWS in memory; the test's hand does what programs and state machines do elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.cloud = MemoryCloud()
        self.bucket = self.cloud.bucket
        self.role = f"arn:aws:iam::{ACCOUNT}:role/replica"
        self.machine_arn = self.cloud.workflow.machine_arn
        self._fates: dict[str, Fate] = {}

    def client(self, service: str) -> Any:
        return self.cloud.client(service)

    def start_job(self, fate: Fate, **changes: Any) -> str:
        request = self.request(**changes)
        self.client("sagemaker").create_training_job(**request)
        name = str(request["TrainingJobName"])
        self._fates[name] = fate
        return name

    def train(self, job: str) -> None:
        self.cloud.clock.advance(60)
        self.cloud.training.train(job)
        self.cloud.clock.advance(60)

    def end_job(self, job: str) -> dict[str, Any]:
        training = self.cloud.training
        if training.status(job)[0] == "Stopping":
            self.cloud.clock.advance(training.stop_seconds)
        else:
            self.train(job)
            match self._fates[job]:
                case Fate.COMPLETES:
                    training.complete(job)
                case Fate.FAILS:
                    training.advance(job)
                    training.fail(job, REASON, uploaded=True)
        return dict(self.client("sagemaker").describe_training_job(TrainingJobName=job))

    def events(self, resource: str, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        found = [event for event in self.cloud.notifications.pending if event["resources"] == [resource]]
        return found[: next(index for index, event in enumerate(found, start=1) if last(event))]

    def wait_on_token(self, execution: str) -> str:
        return self.cloud.workflow.token(execution)

    def end_execution(self, execution: str, token: str) -> None:
        answer = self.cloud.workflow.answer(token)
        assert answer is not None
        if answer.error is None:
            self.cloud.workflow.succeed(execution, answer.output)
        else:
            self.cloud.workflow.fail(execution, answer.error, answer.cause or "")

    def make_topic(self) -> str:
        return f"arn:aws:sns:{REGION}:{ACCOUNT}:people"


_PROGRAMS = {
    Fate.COMPLETES: ["python", "-c", "pass"],
    Fate.FAILS: ["python", "-m", "failing", "7", "broken", "1"],
    Fate.TRAINS_ON: ["python", "-c", "import time; time.sleep(600)"],
}


class EmbeddedBackend(Backend):
    """The embedded cloud: programs that run, a state machine that is interpreted, events through a rule."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self._workshop = workshop
        self.bucket = workshop.bucket
        self.role = workshop.role
        self._sqs = workshop.cloud.client("sqs")
        self._tokens = self.queue("tokens")
        self._events = self.queue("events")
        self._taken: list[dict[str, Any]] = []
        self._waiting: dict[str, str] = {}
        self._clients: dict[str, Any] = {}
        trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
        rights = {"Effect": "Allow", "Action": ["sqs:SendMessage", "states:*"], "Resource": "*"}
        self._role_of_machines = workshop.make_role([rights], trust)
        self._listen()
        self.machine_arn = self._make_machine()

    def client(self, service: str) -> Any:
        # A client of boto3 takes a tenth of a second to make.
        if service not in self._clients:
            once = Config(retries={"total_max_attempts": 1})
            self._clients[service] = self._workshop.cloud.client(service, config=once)
        return self._clients[service]

    def start_job(self, fate: Fate, **changes: Any) -> str:
        request = self.request(**changes)
        request["AlgorithmSpecification"]["ContainerEntrypoint"] = _PROGRAMS[fate]
        self.client("sagemaker").create_training_job(**request)
        return str(request["TrainingJobName"])

    def train(self, job: str) -> None:
        self._workshop.until(job, "Training")

    def end_job(self, job: str) -> dict[str, Any]:
        return self._workshop.end(job)

    def events(self, resource: str, last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        def found() -> list[dict[str, Any]]:
            self._taken += self.received(self._events)
            about = [event for event in self._taken if event["resources"] == [resource]]
            ends = [index for index, event in enumerate(about, start=1) if last(event)]
            return about[: ends[0]] if ends else []

        return wait_until(f"the last event of {resource}", found)

    def wait_on_token(self, execution: str) -> str:
        def waiting() -> str | None:
            self._waiting |= {message["execution"]: message["token"] for message in self.received(self._tokens)}
            return self._waiting.get(execution)

        return wait_until(f"the token of {execution}", waiting)

    def end_execution(self, execution: str, token: str) -> None:
        arn = f"{self.machine_arn.replace(':stateMachine:', ':execution:')}:{execution}"
        client = self.client("stepfunctions")
        wait_until(
            f"the end of {execution}", lambda: client.describe_execution(executionArn=arn)["status"] != "RUNNING"
        )

    def make_topic(self) -> str:
        return str(self._workshop.cloud.client("sns").create_topic(Name=self.name("topic"))["TopicArn"])

    def queue(self, stem: str) -> str:
        """A new queue."""
        return str(self._sqs.create_queue(QueueName=self.name(stem))["QueueUrl"])

    def received(self, queue: str) -> list[dict[str, Any]]:
        """The messages that have come."""
        messages = self._sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        for message in messages.get("Messages", []):
            self._sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages.get("Messages", [])]

    def _listen(self) -> None:
        attributes = self._sqs.get_queue_attributes(QueueUrl=self._events, AttributeNames=["QueueArn"])["Attributes"]
        rule, events = self.name("rule"), self._workshop.cloud.client("events")
        events.put_rule(Name=rule, EventPattern=json.dumps({"source": ["aws.sagemaker", "aws.states"]}))
        events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": attributes["QueueArn"]}])

    def _make_machine(self) -> str:
        task = {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Parameters": {
                "QueueUrl": self._tokens,
                "MessageBody": {"execution.$": "$$.Execution.Name", "token.$": "$$.Task.Token"},
            },
            "End": True,
        }
        return self.make_machine({"StartAt": "Wait", "States": {"Wait": task}})

    def make_machine(self, definition: Mapping[str, Any]) -> str:
        """A state machine that may send messages and run its children; its ARN."""
        machine = self.client("stepfunctions").create_state_machine(
            name=self.name("machine"), definition=json.dumps(definition), roleArn=self._role_of_machines
        )
        return str(machine["stateMachineArn"])


def refusal(call: Callable[..., Any], /, **parameters: Any) -> tuple[str, int]:
    """The code and the HTTP status with which a call is refused.

    Raises:
        AssertionError: it is not.
    """
    try:
        call(**parameters)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    message = f"the call was not refused: {str(parameters)[:200]}"
    raise AssertionError(message)


def has_ended(event: dict[str, Any]) -> bool:
    """Whether an event is the last one of a training job, or of an execution."""
    detail = event["detail"]
    return detail.get("TrainingJobStatus") in _ENDS or detail.get("stopDate") is not None
