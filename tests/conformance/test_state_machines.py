"""State machines: the simulation's interpreter and the embedded cloud's do the same with what Muster's definition uses.

A task puts a message into a queue and waits for its token; the case says how each message is answered.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tests.memory import MemoryCloud
from tests.simulation.kernel import Kernel
from tests.simulation.simulated_aws import KernelClock
from tests.simulation.state_machine import Failed, Interpreter, StateError
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop

Message = dict[str, Any]


class Success(NamedTuple):
    """A message is answered with an output."""

    output: Any


class Failure(NamedTuple):
    """A message is answered with an error."""

    error: str
    cause: str = "a cause"


class Silence(NamedTuple):
    """A message is not answered."""


Answer = Success | Failure | Silence
Respond = Callable[[Message], Answer]


class Ended(NamedTuple):
    """How an execution ended, and the messages that its tasks sent."""

    status: str
    output: Any
    error: str | None
    cause: str | None
    messages: list[Message]


class Machines(ABC):
    """Something that runs state machines."""

    queue: str

    @abstractmethod
    def run(self, definition: Mapping[str, Any], given: Any, respond: Respond) -> Ended:
        """Run a machine to its end."""

    def task(self, fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """A state that sends a message with these fields, and waits for its answer."""
        message = {"token.$": "$$.Task.Token", "retry.$": "$$.State.RetryCount", **fields}
        return {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Parameters": {"QueueUrl": self.queue, "MessageBody": message},
            **more,
        }


class SimulatedMachines(Machines):
    """The interpreter of the simulation."""

    queue = "queue"

    def run(self, definition: Mapping[str, Any], given: Any, respond: Respond) -> Ended:
        host = _Host(respond)
        shown = {"Name": "one", "Id": "arn", "StartTime": "2026-01-01T00:00:00.000Z"}
        ended: list[Ended] = []
        interpreter = Interpreter(host)

        def run() -> None:
            try:
                output = interpreter.run(interpreter.flow(shown, definition, given))
            except StateError as error:
                ended.append(Ended("FAILED", None, error.error, error.cause, host.messages))
            else:
                ended.append(Ended("SUCCEEDED", output, None, None, host.messages))

        host.kernel.spawn("one", run)
        assert host.kernel.run(3_600.0, 10_000)
        host.kernel.close()
        return ended[0]


class _Host:
    def __init__(self, respond: Respond) -> None:
        self.kernel = Kernel()
        self.workflow = MemoryCloud(clock=KernelClock(self.kernel)).workflow
        self.tasks = self
        self.messages: list[Message] = []
        self._respond = respond

    def begin(self, resource: str, parameters: Any, label: str, then: Callable[[Any, Failed | None], None]) -> None:
        message = dict(parameters["MessageBody"])
        token = message.pop("token")
        self.messages.append(message)
        then({"MessageId": "1"}, None)
        match self._respond(message):
            case Success(output):
                request = {"taskToken": token, "output": json.dumps(output)}
                self.kernel.after(0.1, lambda: self._call("SendTaskSuccess", request))
            case Failure(error, cause):
                failure = {"taskToken": token, "error": error, "cause": cause}
                self.kernel.after(0.1, lambda: self._call("SendTaskFailure", failure))

    def _call(self, name: str, request: dict[str, Any]) -> None:
        self.workflow.operations[name].effect(request)

    def jitter(self, label: str) -> float:
        return 0.5

    def abort_lag(self, label: str) -> float:
        return 0.0

    def tell(self, who: str, what: str) -> None:
        pass

    def entered(self, who: str, state: str) -> None:
        pass

    def caught(self, who: str, state: str, error: StateError) -> None:
        pass

    def gave_up(self, who: str, state: str, tries: list[StateError]) -> None:
        pass


class EmbeddedMachines(Machines):
    """The embedded cloud."""

    def __init__(self, workshop: Workshop) -> None:
        self._states = workshop.cloud.client("stepfunctions")
        self._sqs = workshop.cloud.client("sqs")
        self.queue = str(self._sqs.create_queue(QueueName=f"machines-{id(self)}")["QueueUrl"])
        trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
        rights = [
            {"Effect": "Allow", "Action": ["sqs:SendMessage", "states:*"], "Resource": "*"},
        ]
        self._role = workshop.make_role(rights, trust)
        self._count = 0

    def run(self, definition: Mapping[str, Any], given: Any, respond: Respond) -> Ended:
        self._count += 1
        machine = self._states.create_state_machine(
            name=f"machine-{id(self)}-{self._count}", definition=json.dumps(definition), roleArn=self._role
        )["stateMachineArn"]
        arn = self._states.start_execution(stateMachineArn=machine, input=json.dumps(given))["executionArn"]
        messages: list[Message] = []

        def ended() -> dict[str, Any] | None:
            for found in self._sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", []):
                self._sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=found["ReceiptHandle"])
                message = json.loads(found["Body"])
                token = message.pop("token")
                messages.append(message)
                self._answer(token, respond(message))
            shown = dict(self._states.describe_execution(executionArn=arn))
            return shown if shown["status"] != "RUNNING" else None

        shown = wait_until("the end of the execution", ended)
        output = json.loads(shown["output"]) if "output" in shown else None
        return Ended(shown["status"], output, shown.get("error"), shown.get("cause"), messages)

    def _answer(self, token: str, answer: Answer) -> None:
        match answer:
            case Success(output):
                self._states.send_task_success(taskToken=token, output=json.dumps(output))
            case Failure(error, cause):
                self._states.send_task_failure(taskToken=token, error=error, cause=cause)


@pytest.fixture(scope="module")
def embedded_machines(workshop: Workshop) -> EmbeddedMachines:
    return EmbeddedMachines(workshop)


@pytest.fixture(params=["simulated", "embedded"])
def machines(request: pytest.FixtureRequest) -> Machines:
    if request.param == "simulated":
        return SimulatedMachines()
    found: Machines = request.getfixturevalue("embedded_machines")
    return found


RETRIES = [
    {"ErrorEquals": ["Never"], "MaxAttempts": 0},
    {"ErrorEquals": ["Twice"], "IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": 2},
    {"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1, "JitterStrategy": "FULL"},
]
CATCH = [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.failure", "Next": "Tell"}]
# What follows a caught error: its parts stay in the state, and a text is made of them.
TELL = {
    "Type": "Pass",
    "Parameters": {
        "name.$": "$.name",
        "text.$": "States.Format('{} failed: {}: {}', $.name, $.failure.Error, $.failure.Cause)",
    },
    "Next": "Fail",
}
FAIL = {"Type": "Fail", "ErrorPath": "$.name", "CausePath": "$.text"}


def retried(machines: Machines, *errors: str) -> Ended:
    """A task whose first messages are answered with errors, and later ones with a success."""
    left = list(errors)
    states = {
        "Do": machines.task({"name.$": "$.name"}, Retry=RETRIES, Catch=CATCH, ResultPath="$.found", End=True),
        "Tell": TELL,
        "Fail": FAIL,
    }
    respond: Respond = lambda _: Failure(left.pop(0)) if left else Success({"a": 1})  # noqa: E731
    return machines.run({"StartAt": "Do", "States": states}, {"name": "Bob"}, respond)


@pytest.mark.parametrize(
    ("errors", "status", "messages"),
    [
        ((), "SUCCEEDED", 1),
        (("Twice", "Twice"), "SUCCEEDED", 3),
        (("Other", "Twice"), "SUCCEEDED", 3),
        (("Never",), "FAILED", 1),
        (("Other", "Other"), "FAILED", 2),
        (("Twice", "Twice", "Twice"), "FAILED", 3),
    ],
)
def test_a_task_is_tried_again_as_its_retriers_say(
    machines: Machines, errors: tuple[str, ...], status: str, messages: int
) -> None:
    ended = retried(machines, *errors)
    assert ended.status == status
    assert [message["retry"] for message in ended.messages] == list(range(messages))
    if status == "SUCCEEDED":
        assert ended.output == {"name": "Bob", "found": {"a": 1}}
    else:
        assert (ended.error, ended.cause) == ("Bob", f"Bob failed: {errors[-1]}: a cause")


def test_a_time_out_is_caught_and_the_state_entered_again(machines: Machines) -> None:
    again = [{"ErrorEquals": ["States.Timeout"], "ResultPath": None, "Next": "Do"}]
    retry = [{"ErrorEquals": ["States.Timeout"], "MaxAttempts": 0}, *RETRIES]
    state = machines.task({"name.$": "$.name"}, TimeoutSeconds=1, Retry=retry, Catch=again, ResultPath=None, End=True)
    seen: list[Message] = []

    def respond(message: Message) -> Answer:
        seen.append(message)
        return Silence() if len(seen) == 1 else Success("ignored")

    ended = machines.run({"StartAt": "Do", "States": {"Do": state}}, {"name": "Bob"}, respond)
    assert (ended.status, ended.output) == ("SUCCEEDED", {"name": "Bob"})
    assert [message["retry"] for message in ended.messages] == [0, 0]


@pytest.mark.parametrize(
    ("given", "reached"), [({"a": True}, "yes"), ({"a": False, "b": "x"}, "x"), ({"a": False, "b": "y"}, "no")]
)
def test_choices(machines: Machines, given: dict[str, Any], reached: str) -> None:
    choices = [
        {"Variable": "$.a", "BooleanEquals": True, "Next": "yes"},
        {"Variable": "$.b", "StringEquals": "x", "Next": "x"},
    ]
    states: dict[str, Any] = {"Choose": {"Type": "Choice", "Choices": choices, "Default": "no"}}
    for name in ("yes", "x", "no"):
        states[name] = {"Type": "Pass", "Parameters": {"reached": name}, "End": True}
    ended = machines.run({"StartAt": "Choose", "States": states}, given, lambda _: Silence())
    assert ended.output == {"reached": reached}


@pytest.mark.parametrize(
    ("given", "reached"),
    [({"n": 2}, {"by": "large", "given": {"n": 2}}), ({"n": 1}, {"by": "one", "given": {"n": 1, "more": 3}})],
)
def test_a_choice_with_expressions_may_add_to_its_input(
    machines: Machines, given: dict[str, Any], reached: dict[str, Any]
) -> None:
    choices = [
        {"Condition": "{% $states.input.n > 1 %}", "Next": "large"},
        {
            "Condition": "{% $states.input.n = 1 %}",
            "Output": "{% $merge([$states.input, {'more': $more}]) %}",
            "Next": "one",
        },
    ]
    states: dict[str, Any] = {
        "Begin": {
            "Type": "Wait",
            "QueryLanguage": "JSONata",
            "Seconds": "{% 0 %}",
            "Assign": {"more": "{% 3 %}"},
            "Output": "{% $states.input %}",
            "Next": "Choose",
        },
        "Choose": {"Type": "Choice", "QueryLanguage": "JSONata", "Choices": choices, "Default": "no"},
    }
    for name in ("large", "one", "no"):
        states[name] = {"Type": "Pass", "Parameters": {"by": name, "given.$": "$"}, "End": True}
    ended = machines.run({"StartAt": "Begin", "States": states}, given, lambda _: Silence())
    assert ended.output == reached


def test_waits_and_expressions(machines: Machines) -> None:
    states = {
        "Until": {
            "Type": "Wait",
            "QueryLanguage": "JSONata",
            "Timestamp": "{% $fromMillis($toMillis($states.input.from) + $floor($random() * 9 / $states.input.n)) %}",
            "Next": "For",
        },
        "For": {"Type": "Wait", "QueryLanguage": "JSONata", "Seconds": "{% $states.input.n %}", "Next": "Fail"},
        "Fail": {
            "Type": "Fail",
            "QueryLanguage": "JSONata",
            "Error": "{% $states.input.error %}",
            "Cause": "{% 'It is so: ' & $states.input.n %}",
        },
    }
    given = {"from": "2026-01-01T00:00:00.000Z", "n": 1, "error": "Some.Error"}
    ended = machines.run({"StartAt": "Until", "States": states}, given, lambda _: Silence())
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "Some.Error", "It is so: 1")


def mapped(machines: Machines, respond: Respond) -> Ended:
    """A distributed map whose children send a message each and end with nothing."""
    child = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "Do",
        "States": {
            "Do": machines.task({"name.$": "$.name", "rank.$": "$.rank"}, Next="Done"),
            "Done": {"Type": "Succeed", "OutputPath": None},
        },
    }
    states = {
        "All": {
            "Type": "Map",
            "ItemsPath": "$.ranks",
            "ItemSelector": {"name.$": "$.name", "rank.$": "$$.Map.Item.Value"},
            "MaxConcurrency": 10,
            "Label": "All",
            "ItemProcessor": child,
            "ResultPath": None,
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
            "End": True,
        },
        "Caught": {"Type": "Fail", "ErrorPath": "$.Error", "Cause": "caught"},
    }
    return machines.run({"StartAt": "All", "States": states}, {"name": "Bob", "ranks": [0, 1, 2]}, respond)


def test_a_map_runs_a_child_for_each_item(machines: Machines) -> None:
    ended = mapped(machines, lambda message: Success({"rank": message["rank"]}))
    assert (ended.status, ended.output) == ("SUCCEEDED", {"name": "Bob", "ranks": [0, 1, 2]})
    found = sorted(ended.messages, key=lambda message: message["rank"])
    assert found == [{"retry": 0, "name": "Bob", "rank": rank} for rank in range(3)]


def test_a_map_fails_with_a_child_that_fails(machines: Machines) -> None:
    ended = mapped(machines, lambda message: Failure("Broken") if message["rank"] == 1 else Success({}))
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "States.ExceedToleratedFailureThreshold", "caught")


def test_a_child_that_fails_ends_its_siblings() -> None:
    """As on AWS. The embedded cloud waits for them."""
    ended = mapped(SimulatedMachines(), lambda message: Failure("Broken") if message["rank"] == 1 else Silence())
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "States.ExceedToleratedFailureThreshold", "caught")


# --- the state that launches a replica --------------------------------------------------------------

LAUNCH = "Launch the job and wait for its end"


def launched(machines: Machines, *answers: Answer) -> Ended:
    """Run the definition's own state. It sends a message here; each state after it ends the machine."""
    definition = json.loads((ROOT / "statemachine" / "run.asl.json").read_text(encoding="utf-8"))
    state = definition["States"]["Train the replicas"]["ItemProcessor"]["States"][LAUNCH]
    message = {name: state["Arguments"]["Payload"][name] for name in ("attempt", "token", "retry")}
    own = {
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Arguments": {"QueueUrl": machines.queue, "MessageBody": message},
        "Retry": state["Retry"][:1],
    }
    begin = {
        "Type": "Wait",
        "QueryLanguage": "JSONata",
        "Seconds": "{% 0 %}",
        "Assign": {"rearm_seconds": "{% 2 %}"},
        "Output": "{% $states.input %}",
        "Next": LAUNCH,
    }
    states: dict[str, Any] = {"Begin": begin, LAUNCH: {**state, **own}}
    for following in {catch["Next"] for catch in state["Catch"]} - {LAUNCH}:
        states[following] = {"Type": "Pass", "Parameters": {"by": following, "given.$": "$"}, "End": True}
    left = list(answers)
    given = {"run": "one", "rank": 3, "attempt": 1}
    return machines.run({"StartAt": "Begin", "States": states}, given, lambda _: left.pop(0))


def answer(following: str, attempt: int = 2) -> dict[str, Any]:
    return {"run": "one", "rank": 3, "attempt": attempt, "next": following, "delay_seconds": 0, "reason": "why {}"}


@pytest.mark.parametrize("following", ["done", "fail"])
def test_a_replica_that_is_not_rerun_ends_with_its_task(machines: Machines, following: str) -> None:
    ended = launched(machines, Success(answer(following)))
    assert (ended.status, ended.output, len(ended.messages)) == ("SUCCEEDED", {}, 1)


def test_a_rerun_that_is_sent_as_an_error_launches_the_next_attempt(machines: Machines) -> None:
    again = Failure("Muster.Rerun", json.dumps(answer("rerun")))
    ended = launched(machines, again, Success(answer("done")))
    assert (ended.status, ended.output) == ("SUCCEEDED", {})
    assert [(one["attempt"], one["retry"]) for one in ended.messages] == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("error", "following", "by"),
    [
        ("Muster.RerunLater", "rerun", "Wait before the rerun"),
        ("Muster.Stop", "stop", "Stop the whole run"),
    ],
)
def test_what_follows_a_caught_error_gets_the_state_in_its_cause(
    machines: Machines, error: str, following: str, by: str
) -> None:
    ended = launched(machines, Failure(error, json.dumps(answer(following))))
    assert ended.output == {"by": by, "given": answer(following)}


@pytest.mark.parametrize("following", ["rerun", "stop"])
def test_an_older_version_that_sends_a_rerun_as_an_output_is_asked_again(machines: Machines, following: str) -> None:
    ended = launched(machines, Success(answer(following)))
    assert ended.output == {"by": "Ask for the decision", "given": {"run": "one", "rank": 3, "attempt": 1}}


def test_an_error_of_muster_itself_is_handed_on(machines: Machines) -> None:
    ended = launched(machines, Failure("Muster.ValueError", "what it is"))
    failure = {"Error": "Muster.ValueError", "Cause": "what it is"}
    given = {"run": "one", "rank": 3, "attempt": 1, "failure": failure}
    assert ended.output == {"by": "The launch failed", "given": given}


def test_a_launch_that_times_out_is_repeated_with_its_attempt(machines: Machines) -> None:
    ended = launched(machines, Silence(), Success(answer("done")))
    assert (ended.status, [one["attempt"] for one in ended.messages]) == ("SUCCEEDED", [1, 1])
