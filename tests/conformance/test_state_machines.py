"""State machines: the simulation's interpreter and the embedded cloud's do the same with what Muster's definition uses.

A task puts a message into a queue and waits for its token; the case says how each message is answered.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from tests.conformance.backends import EmbeddedBackend
from tests.memory import MemoryCloud
from tests.simulation.kernel import Kernel
from tests.simulation.simulated_aws import KernelClock
from tests.simulation.state_machine import Failed, Interpreter, StateError
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until

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

    def tell(self, *_: object) -> None:
        """Nobody listens."""

    entered = caught = gave_up = tell


class EmbeddedMachines(Machines):
    """The embedded cloud."""

    def __init__(self, backend: EmbeddedBackend) -> None:
        self._backend = backend
        self._states = backend.client("stepfunctions")
        self.queue = backend.queue("machines")

    def run(self, definition: Mapping[str, Any], given: Any, respond: Respond) -> Ended:
        machine = self._backend.make_machine(definition)
        arn = self._states.start_execution(stateMachineArn=machine, input=json.dumps(given))["executionArn"]
        messages: list[Message] = []

        def ended() -> dict[str, Any] | None:
            for message in self._backend.received(self.queue):
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


@pytest.fixture(params=["simulated", "embedded"])
def machines(request: pytest.FixtureRequest) -> Machines:
    if request.param == "simulated":
        return SimulatedMachines()
    return EmbeddedMachines(request.getfixturevalue("embedded"))


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
    ("errors", "messages"),
    [("", 1), ("Twice Twice", 3), ("Twice Twice Twice", 3), ("Other Twice", 3), ("Never", 1), ("Other Other", 2)],
)
def test_a_task_is_tried_again_as_its_retriers_say(machines: Machines, errors: str, messages: int) -> None:
    given = errors.split()
    ended = retried(machines, *given)
    assert [message["retry"] for message in ended.messages] == list(range(messages))
    if messages > len(given):
        assert (ended.status, ended.output) == ("SUCCEEDED", {"name": "Bob", "found": {"a": 1}})
    else:
        assert (ended.status, ended.error, ended.cause) == ("FAILED", "Bob", f"Bob failed: {given[-1]}: a cause")


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


def test_choices(machines: Machines) -> None:
    choices = [
        {"Variable": "$.a", "BooleanEquals": True, "Next": "yes"},
        {"Variable": "$.b", "StringEquals": "x", "Next": "x"},
    ]
    states: dict[str, Any] = {"Choose": {"Type": "Choice", "Choices": choices, "Default": "no"}}
    for name in ("yes", "x", "no"):
        states[name] = {"Type": "Pass", "Parameters": {"reached": name}, "End": True}
    for given, reached in (({"a": True}, "yes"), ({"a": False, "b": "x"}, "x"), ({"a": False, "b": "y"}, "no")):
        ended = machines.run({"StartAt": "Choose", "States": states}, given, lambda _: Silence())
        assert ended.output == {"reached": reached}


def begin_with(following: str, **values: str) -> dict[str, Any]:
    """A state that assigns variables, and hands on what it is given."""
    state = {"Type": "Wait", "QueryLanguage": "JSONata", "Seconds": "{% 0 %}", "Output": "{% $states.input %}"}
    return {**state, "Assign": values, "Next": following}


def test_a_choice_with_expressions_may_add_to_its_input(machines: Machines) -> None:
    more = "{% $merge([$states.input, {'more': $more}]) %}"
    choices = [
        {"Condition": "{% $states.input.n > 1 %}", "Next": "large"},
        {"Condition": "{% $states.input.n = 1 %}", "Output": more, "Next": "one"},
    ]
    states: dict[str, Any] = {
        "Begin": begin_with("Choose", more="{% 3 %}"),
        "Choose": {"Type": "Choice", "QueryLanguage": "JSONata", "Choices": choices, "Default": "no"},
    }
    for name in ("large", "one", "no"):
        states[name] = {"Type": "Pass", "Parameters": {"by": name, "given.$": "$"}, "End": True}
    for n, by, added in ((2, "large", {}), (1, "one", {"more": 3})):
        ended = machines.run({"StartAt": "Begin", "States": states}, {"n": n}, lambda _: Silence())
        assert ended.output == {"by": by, "given": {"n": n, **added}}


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
GIVEN = {"run": "one", "rank": 3, "attempt": 1, "rearm_seconds": 2}


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
    states: dict[str, Any] = {"Begin": begin_with(LAUNCH, rearm_seconds="{% 2 %}"), LAUNCH: {**state, **own}}
    for following in {catch["Next"] for catch in state["Catch"]} - {LAUNCH}:
        states[following] = {"Type": "Pass", "Parameters": {"by": following, "given.$": "$"}, "End": True}
    left = list(answers)
    return machines.run({"StartAt": "Begin", "States": states}, GIVEN, lambda _: left.pop(0))


def answer(following: str, attempt: int = 2) -> dict[str, Any]:
    return {"run": "one", "rank": 3, "attempt": attempt, "next": following, "delay_seconds": 0, "reason": "why {}"}


def test_what_follows_a_launch_gets_the_state_that_its_answer_brings(machines: Machines) -> None:
    failure = {"Error": "Muster.ValueError", "Cause": "what it is"}
    for sent, output in (
        # A replica that is not rerun ends with its task.
        *((Success(answer(following)), {}) for following in ("done", "fail")),
        (
            Failure("Muster.RerunLater", json.dumps(answer("rerun"))),
            {"by": "Wait before the rerun", "given": {**GIVEN, **answer("rerun")}},
        ),
        (
            Failure("Muster.Stop", json.dumps(answer("stop"))),
            {"by": "Stop the whole run", "given": {**GIVEN, **answer("stop")}},
        ),
        (Failure(*failure.values()), {"by": "The launch failed", "given": {**GIVEN, "failure": failure}}),
    ):
        ended = launched(machines, sent)
        assert (ended.status, ended.output, len(ended.messages)) == ("SUCCEEDED", output, 1), sent


def test_a_rerun_that_is_sent_as_an_error_launches_the_next_attempt_and_a_time_out_the_same(machines: Machines) -> None:
    again = Failure("Muster.Rerun", json.dumps(answer("rerun")))
    for first, attempts in ((again, [1, 2]), (Silence(), [1, 1])):
        ended = launched(machines, first, Success(answer("done")))
        assert (ended.status, ended.output) == ("SUCCEEDED", {})
        assert [(one["attempt"], one["retry"]) for one in ended.messages] == [(number, 0) for number in attempts]
