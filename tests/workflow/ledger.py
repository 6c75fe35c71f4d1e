"""What the deployed stack declares, and what of it some runs have used: ways of the workflow, rights, triggers."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jsonata import Jsonata

from tests.support.template import Template, construct_name


class Way(NamedTuple):
    """One way out of a state. `by`: what takes it, empty for the plain end of the state."""

    state: str
    by: str
    to: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.state, "-", self.by, "->", self.to)))


AGAIN = "the same state, tried again"
THE_END = "the end"


def declared_ways(machine: Mapping[str, Any]) -> Iterator[Way]:
    """Every way of a state machine, those of the children of its map included."""
    for name, state in machine["States"].items():
        for number, rule in enumerate(state.get("Choices", ()), 1):
            yield Way(name, f"rule {number}", rule["Next"])
        if "Default" in state:
            yield Way(name, "default", state["Default"])
        if state["Type"] in {"Task", "Map", "Pass", "Wait"}:
            yield Way(name, "", state.get("Next", THE_END))
        for retrier in state.get("Retry", ()):
            if retrier["MaxAttempts"]:
                yield Way(name, _label(retrier), AGAIN)
        for catcher in state.get("Catch", ()):
            yield Way(name, _label(catcher), catcher["Next"])
        if "ItemProcessor" in state:
            yield from declared_ways(state["ItemProcessor"])


def ways_taken(machine: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Iterator[Way]:
    """The ways that an execution of a machine took.

    The results of its tasks say which: the history of a child in the embedded cloud has no others. Where an execution
    was aborted, its ways end.
    """
    results = iter(_results(history))
    name, data = machine["StartAt"], None
    while (state := machine["States"][name])["Type"] not in {"Succeed", "Fail"}:
        if state["Type"] == "Task":
            ways, data = _of_task(name, state, results)
        elif state["Type"] == "Choice":
            ways = [_chosen(name, state, data)]
        elif state["Type"] == "Map" and not any(event["type"] == "MapStateExited" for event in history):
            return
        else:
            ways = [Way(name, "", state.get("Next", THE_END))]
        yield from ways
        if not ways or ways[-1].to in {AGAIN, THE_END}:
            return
        name = ways[-1].to


def _results(history: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """How each try of a task ended. An output that cannot be evaluated is a failure, which follows the success."""
    for event, following in pairwise([*history, {"type": ""}]):
        if event["type"] == "TaskFailed" or (event["type"] == "TaskSucceeded" and following["type"] != "TaskFailed"):
            yield event


def _of_task(name: str, state: Mapping[str, Any], results: Iterator[Mapping[str, Any]]) -> tuple[list[Way], Any]:
    """The ways that a task took, the one out of it last, and what it was left with."""
    ways: list[Way] = []
    tried: Counter[str] = Counter()
    for event in results:
        if event["type"] == "TaskSucceeded":
            output = json.loads(event["taskSucceededEventDetails"]["output"])
            data = output["Payload"] if state.get("OutputPath") == "$.Payload" else output
            return [*ways, Way(name, "", state.get("Next", THE_END))], data
        error = event["taskFailedEventDetails"]["error"]
        retrier = _first(state.get("Retry", ()), error)
        if retrier is not None and tried[_label(retrier)] < retrier["MaxAttempts"]:
            tried[_label(retrier)] += 1
            ways.append(Way(name, _label(retrier), AGAIN))
            continue
        catcher = _first(state.get("Catch", ()), error)
        if catcher is not None:
            ways.append(Way(name, _label(catcher), catcher["Next"]))
        break
    return ways, None


def _label(handler: Mapping[str, Any]) -> str:
    """A retrier or catcher by the first of its errors."""
    return str(handler["ErrorEquals"][0])


def _first(handlers: Sequence[Mapping[str, Any]], error: str) -> Mapping[str, Any] | None:
    return next((one for one in handlers if error in one["ErrorEquals"] or "States.ALL" in one["ErrorEquals"]), None)


def _chosen(name: str, state: Mapping[str, Any], data: Any) -> Way:
    for number, rule in enumerate(state["Choices"], 1):
        if _holds(rule, data):
            return Way(name, f"rule {number}", rule["Next"])
    return Way(name, "default", state["Default"])


def _holds(rule: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    if "Condition" in rule:
        expression = Jsonata(rule["Condition"].removeprefix("{%").removesuffix("%}"))
        frame = expression.create_frame()
        frame.bind("states", {"input": data})
        return expression.evaluate(None, frame) is True
    wanted = rule["BooleanEquals"] if "BooleanEquals" in rule else rule["StringEquals"]
    return bool(data.get(rule["Variable"].removeprefix("$.")) == wanted)


# --- rights ------------------------------------------------------------------------------------------


class Right(NamedTuple):
    """What a role may do."""

    role: str
    action: str


_OPERATIONS = {
    "s3:ListBucket": {"ListObjectsV2"},
    "s3:GetObject": {"GetObject", "HeadObject"},
    "s3:DeleteObject": {"DeleteObject", "DeleteObjects"},
}
"""Actions that are not called like the operation that they allow."""


def declared_rights(template: Template) -> set[Right]:
    """Every action of every statement."""
    return {Right(one.role, action) for one in template.statements for action in one.actions if one.effect == "Allow"}


def rights_used(template: Template, physical: Mapping[str, str], calls: Sequence[Any]) -> set[Right]:
    """The rights that calls needed. `physical`: names of resources by their logical IDs."""
    roles = {physical[key]: construct_name(key) for key in template.of_type("AWS::IAM::Role")}
    called = {(roles.get(call.caller), call.operation) for call in calls}
    return {
        right
        for right in declared_rights(template)
        if any((right.role, name) in called for name in _OPERATIONS.get(right.action, {right.action.partition(":")[2]}))
    }


# --- triggers ----------------------------------------------------------------------------------------

TRIGGERS = ("AWS::Events::Rule", "AWS::SNS::Subscription", "AWS::CloudWatch::Alarm", "AWS::Lambda::EventInvokeConfig")


def declared_triggers(template: Template) -> set[str]:
    """The rules, subscriptions, alarms and configurations of dead letters, by their logical IDs without the digest."""
    return {key[:-8] for kind in TRIGGERS for key in template.of_type(kind)}
