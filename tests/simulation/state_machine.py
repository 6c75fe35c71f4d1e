"""An interpreter of state machines, as far as Muster's definition needs it, in virtual time.

tests/conformance/test_state_machines.py holds it to the interpreter of the embedded cloud. A field or an expression
that it does not have raises NotImplementedError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

from jsonata.jexception import JException
from jsonata.jsonata import Jsonata

from muster.contract import timestamps
from muster.contract.spec.retry_budget import HISTORY_MAX
from tests.memory.plain_data import copied
from tests.memory.workflow import Answer, Workflow
from tests.simulation.kernel import Activity, Kernel

_FIELDS = {
    "Task": {
        *("Resource", "Parameters", "TimeoutSeconds"),
        *("Retry", "Catch", "ResultPath", "OutputPath", "Arguments", "Output"),
    },
    "Map": {"ItemsPath", "ItemSelector", "MaxConcurrency", "Label", "ItemProcessor", "ResultPath", "Catch"},
    "Choice": {"Choices", "Default"},
    "Wait": {"Seconds", "Timestamp", "Assign", "Output"},
    "Pass": {"Parameters", "Result", "ResultPath"},
    "Succeed": {"OutputPath"},
    "Fail": {"Error", "Cause", "ErrorPath", "CausePath"},
}
_QUERY = "States.QueryEvaluationError"
# Muster's definition catches these where nothing has failed.
_PLANNED = {"States.Timeout", _QUERY, "Muster.Rerun", "Muster.RerunLater", "Muster.Stop"}
_EVERYWHERE = {"Type", "Comment", "Next", "End", "QueryLanguage"}
_TOKEN = ".waitForTaskToken"
_RUNTIME = "States.Runtime"
_CHILD_FAILED = "States.ExceedToleratedFailureThreshold"
_FORMAT = re.compile(r"States\.Format\('((?:[^'\\]|\\.)*)'((?:,\s*\$[^,)]*)*)\)")
_PATH = re.compile(r"\$(\.\w+)*")
# Most expressions: what they name is found without JSONata where it is a single value.
_PLAIN_PATH = re.compile(r"\{%\s*\$states\.(\w+(?:\.\w+)*)\s*%\}")
_SCALARS = (str, int, float)


class StateError(Exception):
    """An error as states meet it. `injected`: the simulation alone caused it."""

    def __init__(self, error: str, cause: str = "", *, injected: bool = False) -> None:
        super().__init__(f"{error}: {cause}")
        self.error, self.cause, self.injected = error, cause, injected


class Failed(NamedTuple):
    error: str
    cause: str
    injected: bool = False


class Host(Protocol):
    """What an interpreter needs of its surroundings."""

    kernel: Kernel
    workflow: Workflow

    def begin(self, resource: str, parameters: Any, label: str, then: Callable[[Any, Failed | None], None]) -> None:
        """Begin a task; `then` gets what it answers."""

    def jitter(self, label: str) -> float:
        """A number from 0 to 1."""

    def abort_lag(self, label: str) -> float:
        """Seconds until a child execution ends with its parent."""

    def tell(self, who: str, what: str) -> None:
        """For the trace."""

    def entered(self, who: str, state: str) -> None: ...

    def caught(self, who: str, state: str, error: StateError) -> None: ...

    def gave_up(self, who: str, state: str, tries: list[StateError], seconds: float) -> None:
        """A state has failed after all its retries, `seconds` after the first try began."""


@dataclass
class Flow:
    """A flow of states and how far it has come: what a redrive continues."""

    name: str
    states: Mapping[str, Any]
    begin: str
    context: dict[str, Any]
    state: str | None = None
    data: Any = None
    variables: dict[str, Any] = field(default_factory=dict)
    children: list[Flow] = field(default_factory=list)
    ended: bool = False
    error: StateError | None = None
    events: int = 2
    """Of its history: its start, its end, and those of its states."""

    def evaluated(self, text: str, data: Any, random: float = 0.0, **states: Any) -> Any:
        """A field of a JSONata state; `states` is what `$states` has besides the input."""
        return _evaluated(text, data, random, self.variables, states)

    def rendered(self, template: Any, data: Any, **states: Any) -> Any:
        """A template of a JSONata state.

        Raises:
            StateError: an expression cannot be evaluated, or has no result.
        """
        if isinstance(template, Mapping):
            return {name: self.rendered(value, data, **states) for name, value in template.items()}
        if not isinstance(template, str) or not template.startswith("{%"):
            return template
        try:
            found = self.evaluated(template, data, **states)
        except JException as error:
            raise StateError(_QUERY, str(error)) from None
        if found is None:
            raise StateError(_QUERY, f"{template} has no result")
        return found


class Interpreter:
    """Runs flows: the execution's own, and those of the children of a distributed map."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._kernel = host.kernel
        self._waiting: dict[str, Callable[[Answer], None]] = {}
        host.workflow.on_answer = self._answered

    def flow(self, execution: Mapping[str, Any], definition: Mapping[str, Any], data: Any) -> Flow:
        """The flow of a new execution; `execution` is what `$$.Execution` shows."""
        context = {"Execution": {**execution, "Input": data}}
        return Flow(execution["Name"], definition["States"], definition["StartAt"], context, data=data)

    def run(self, flow: Flow) -> Any:
        """Run a flow, from where it was.

        Raises:
            StateError: it fails.
        """
        name = flow.state or flow.begin
        while True:
            flow.state = name
            state = flow.states[name]
            if unknown := state.keys() - _FIELDS[state["Type"]] - _EVERYWHERE:
                raise NotImplementedError(name, unknown)
            context = {
                **flow.context,
                "State": {"Name": name, "EnteredTime": timestamps.text(self._kernel.now()), "RetryCount": 0},
            }
            self._host.entered(flow.name, name)
            flow.events += 2
            data, following = self._state(flow, name, state, context)
            flow.data = data
            if following is None:
                flow.ended = True
                return data
            name = following

    def _state(
        self, flow: Flow, name: str, state: Mapping[str, Any], context: dict[str, Any]
    ) -> tuple[Any, str | None]:
        data = flow.data
        following = state.get("Next")
        match state["Type"]:
            case "Task" | "Map":
                return self._with_retries(flow, name, state, context)
            case "Choice":
                rule = next((rule for rule in state["Choices"] if _holds(flow, rule, data)), None)
                if rule is None:
                    return data, state["Default"]
                return flow.evaluated(rule["Output"], data) if "Output" in rule else data, rule["Next"]
            case "Wait":
                self._kernel.sleep(self._seconds(flow, state, data))
                assigned = {name: flow.evaluated(text, data) for name, text in state.get("Assign", {}).items()}
                data = flow.evaluated(state["Output"], data) if "Output" in state else data
                flow.variables.update(assigned)
            case "Pass":
                data = _put(state, data, _rendered(state["Parameters"], data, context))
            case "Succeed":
                return (_out(state, data), None)
            case "Fail":
                raise StateError(_said(state, "Error", data), _said(state, "Cause", data))
        return data, following

    # --- tasks -----------------------------------------------------------------------------------

    def _with_retries(
        self, flow: Flow, name: str, state: Mapping[str, Any], context: dict[str, Any]
    ) -> tuple[Any, str | None]:
        data, tried, tries = flow.data, [0] * len(state.get("Retry", ())), []
        began = self._kernel.seconds
        while True:
            try:
                result = self._map(flow, state, context) if state["Type"] == "Map" else self._task(flow, state, context)
                if state.get("QueryLanguage") == "JSONata":
                    return flow.rendered(state["Output"], data, result=result), state.get("Next")
                return _out(state, _put(state, data, result)), state.get("Next")
            except StateError as error:
                tries.append(error)
                self._host.tell(flow.name, f"{name!r} fails: {error}")
                if (pause := self._pause(flow, state, tried, error)) is not None:
                    context["State"]["RetryCount"] += 1
                    self._kernel.sleep(pause)
                    continue
                for catcher in state.get("Catch", ()):
                    if _matches(catcher["ErrorEquals"], error):
                        self._host.caught(flow.name, name, error)
                        if error.error not in _PLANNED:
                            self._host.gave_up(flow.name, name, tries, self._kernel.seconds - began)
                        found = {"Error": error.error, "Cause": error.cause}
                        if state.get("QueryLanguage") == "JSONata":
                            return flow.rendered(catcher["Output"], data, errorOutput=found), catcher["Next"]
                        return _put(catcher, data, found), catcher["Next"]
                self._host.gave_up(flow.name, name, tries, self._kernel.seconds - began)
                raise

    def _pause(self, flow: Flow, state: Mapping[str, Any], tried: list[int], error: StateError) -> float | None:
        for index, retrier in enumerate(state.get("Retry", ())):
            if not _matches(retrier["ErrorEquals"], error):
                continue
            if tried[index] >= retrier.get("MaxAttempts", 3):
                return None
            pause = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2) ** tried[index]
            pause = min(pause, retrier.get("MaxDelaySeconds", pause))
            tried[index] += 1
            jittered = retrier.get("JitterStrategy") == "FULL"
            return float(pause * self._host.jitter(f"{flow.name}/pause") if jittered else pause)
        return None

    def _task(self, flow: Flow, state: Mapping[str, Any], context: dict[str, Any]) -> Any:
        flow.events += 4  # scheduled, started, submitted, and its end
        if flow.events > HISTORY_MAX:
            raise StateError(_RUNTIME, "the history is full")
        resource = state["Resource"]
        waits = resource.endswith(_TOKEN)
        token = self._host.workflow.token() if waits else None
        context = {**context, "Task": {"Token": token}}
        if "Arguments" in state:
            parameters = flow.rendered(state["Arguments"], flow.data, context=context)
        else:
            parameters = _rendered(state.get("Parameters", {}), flow.data, context)
        wake = self._kernel.park()
        found: list[Any] = []

        def end(answer: Any, failed: Failed | None) -> None:
            if not found:
                found.append(failed if failed is not None else (answer,))
                wake()

        def answered(answer: Any, failed: Failed | None) -> None:
            if failed is not None or not waits:
                end(answer, failed)

        if token is not None:
            self._waiting[token] = lambda answer: end(
                copied(answer.output),
                None
                if answer.error is None and answer.output is not None
                else Failed(answer.error or "", answer.cause or ""),
            )
        seconds = flow.rendered(state.get("TimeoutSeconds"), flow.data, context=context)
        if seconds is not None:
            self._kernel.after(seconds, lambda: end(None, Failed("States.Timeout", "")))
        self._host.begin(resource.removesuffix(_TOKEN), parameters, flow.name, answered)
        try:
            if not found:
                self._kernel.wait()
        finally:
            if token is not None:
                self._host.workflow.expire(token)
                del self._waiting[token]
        [answer] = found
        if isinstance(answer, Failed):
            raise StateError(answer.error, answer.cause, injected=answer.injected)
        return answer[0]

    def _answered(self, answer: Answer) -> None:
        if answer.token in self._waiting:
            self._waiting[answer.token](answer)

    # --- children --------------------------------------------------------------------------------

    def _map(self, flow: Flow, state: Mapping[str, Any], context: dict[str, Any]) -> Any:
        processor = state["ItemProcessor"]
        if not flow.children:
            for index, item in enumerate(_at(state.get("ItemsPath", "$"), flow.data, context)):
                of_item = {**context, "Map": {"Item": {"Index": index, "Value": item}}}
                given = _rendered(state["ItemSelector"], flow.data, of_item) if "ItemSelector" in state else item
                name = f"{flow.name}/{index}"
                child = {"Execution": {**context["Execution"], "Name": name, "Input": given}}
                flow.children.append(Flow(name, processor["States"], processor["StartAt"], child, data=given))
        living = [child for child in flow.children if not child.ended]
        wake = self._kernel.park()

        def run(child: Flow) -> Any:
            child.error = None
            try:
                return self.run(child)
            except StateError as error:
                child.error = error
                return None
            finally:
                if child.error is not None or all(one.ended for one in living):
                    wake()

        activities = [self._kernel.spawn(child.name, lambda child=child: run(child)) for child in living]
        try:
            if activities:
                self._kernel.wait()
        except BaseException:
            self._abort(living, activities)
            # A redrive goes on from here, also while what is aborted lives on.
            flow.children = [replace(child) for child in flow.children]
            raise
        failed = next((child.error for child in living if child.error is not None), None)
        if failed is not None:
            self._abort(living, activities)
            flow.children = []
            raise StateError(_CHILD_FAILED, f"a child has failed: {failed}", injected=failed.injected)
        return [child.data for child in flow.children]

    def _abort(self, flows: list[Flow], activities: list[Activity]) -> None:
        for flow, activity in zip(flows, activities, strict=True):
            if not activity.ended:
                lag = self._host.abort_lag(flow.name)
                self._kernel.after(lag, lambda activity=activity: self._kernel.kill(activity))

    # --- values ----------------------------------------------------------------------------------

    def _seconds(self, flow: Flow, state: Mapping[str, Any], data: Any) -> float:
        if "Timestamp" in state:
            until = flow.evaluated(state["Timestamp"], data, self._host.jitter(f"{flow.name}/slot"))
            return max(0.0, (timestamps.parse(until) - self._kernel.now()).total_seconds())
        return float(flow.evaluated(state["Seconds"], data))


def _said(state: Mapping[str, Any], name: str, data: Any) -> str:
    if f"{name}Path" in state:
        return str(_at(state[f"{name}Path"], data, {}))
    text = state.get(name, "")
    return str(_evaluated(text, data, 0.0)) if text.startswith("{%") else str(text)


def _matches(wanted: list[str], error: StateError) -> bool:
    # Neither can be retried or caught by States.ALL.
    if error.error in {"States.Runtime", "States.DataLimitExceeded"}:
        return error.error in wanted
    return (
        error.error in wanted
        or "States.ALL" in wanted
        or ("States.TaskFailed" in wanted and error.error != "States.Timeout")
    )


def _holds(flow: Flow, rule: Mapping[str, Any], data: Any) -> bool:
    if "Condition" in rule:
        return flow.evaluated(rule["Condition"], data) is True
    found = _at(rule["Variable"], data, {})
    if "BooleanEquals" in rule:
        return found is rule["BooleanEquals"]
    return bool(found == rule["StringEquals"])


def _at(path: str, data: Any, context: Mapping[str, Any]) -> Any:
    root, path = (context, path[1:]) if path.startswith("$$") else (data, path)
    if not _PATH.fullmatch(path):
        raise NotImplementedError(path)
    found: Any = root
    for name in path.split(".")[1:]:
        if not isinstance(found, Mapping) or name not in found:
            raise StateError(_RUNTIME, f"{path} is not in {found!r}")
        found = found[name]
    return found


def _rendered(template: Any, data: Any, context: Mapping[str, Any]) -> Any:
    if isinstance(template, list):
        return [_rendered(item, data, context) for item in template]
    if not isinstance(template, Mapping):
        return template
    return {
        name.removesuffix(".$"): (_dynamic if name.endswith(".$") else _rendered)(value, data, context)
        for name, value in template.items()
    }


def _dynamic(expression: str, data: Any, context: Mapping[str, Any]) -> Any:
    if expression.startswith("$"):
        return copied(_at(expression, data, context))
    found = _FORMAT.fullmatch(expression)
    if found is None:
        raise NotImplementedError(expression)
    text = found[1].replace("\\'", "'")
    for path in filter(None, (part.strip() for part in found[2].split(","))):
        value = _at(path, data, context)
        text = text.replace("{}", value if isinstance(value, str) else str(value), 1)
    return text


def _put(state: Mapping[str, Any], data: Any, result: Any) -> Any:
    path = state.get("ResultPath", "$")
    if path is None:
        return data
    if path == "$":
        return result
    if path.count(".") != 1:
        raise NotImplementedError(path)
    return {**data, path.removeprefix("$."): result}


def _out(state: Mapping[str, Any], data: Any) -> Any:
    path = state.get("OutputPath", "$")
    return {} if path is None else _at(path, data, {})


def _found(data: Any, path: str) -> Any:
    """What lies at a path through objects alone; None where it does not lead so."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


@cache
def _expression(text: str) -> Jsonata:
    expression = Jsonata(text)
    expression.register_lambda("parse", json.loads)  # Step Functions adds it
    return expression


def _evaluated(
    text: str,
    data: Any,
    random: float,
    variables: Mapping[str, Any] | None = None,
    states: Mapping[str, Any] | None = None,
) -> Any:
    known = {"input": data, **(states or {})}
    if (path := _PLAIN_PATH.fullmatch(text)) is not None and isinstance(found := _found(known, path[1]), _SCALARS):
        return found
    expression = _expression(text.removeprefix("{%").removesuffix("%}").strip().replace("$random()", "$drawn"))
    frame = expression.create_frame()
    frame.bind("states", known)
    frame.bind("drawn", random)
    for name, value in (variables or {}).items():
        frame.bind(name, value)
    return expression.evaluate(None, frame)
