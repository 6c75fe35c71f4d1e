"""The workflow's definition as it is deployed: the file with its time-outs filled in. Needs no CDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

MAP_LABEL = "Replicas"
"""The label of the definition's Map: the children's metrics and ARNs carry it behind the state machine's name."""

# What a call of a function with snapshots may also meet: Lambda is making its snapshot anew, which it does from time to
# time, or a restore took too long. It takes minutes, as throttling may.
_SNAPSHOT_ERRORS = [
    "Lambda.SnapStartException",
    "Lambda.SnapStartNotReadyException",
    "Lambda.SnapStartTimeoutException",
]
_THROTTLED = "Lambda.TooManyRequestsException"


class Retry(TypedDict):
    """The errors of a retrier; the file has more."""

    ErrorEquals: list[str]


class State(TypedDict):
    """The fields of a state that Muster's code reads or sets; the file has more."""

    Resource: NotRequired[str]
    TimeoutSeconds: NotRequired[int | str]
    Retry: NotRequired[list[Retry]]
    ItemSelector: NotRequired[dict[str, object]]
    ItemProcessor: NotRequired[Machine]


class Machine(TypedDict):
    """A state machine in the Amazon States Language, or the child workflow of a Map."""

    States: dict[str, State]


def armed_definition(path: Path, rearm_seconds: int, *, snap_start: bool = False) -> Machine:
    """The definition in the file `path`, with the re-arm period of every wait for a task token.

    It is a literal of the wait, or the field `rearm_seconds` of what each child begins with, whose states take the
    smaller one of it and the run's own. The ARNs of the service's integrations name the placeholder `Partition`, so
    that the states also start in aws-us-gov and aws-cn; the file has `aws`, which Workflow Studio and the validators of
    the language can read. With `snap_start`, a function whose snapshot is not ready is called again as patiently as one
    that is throttled.

    Raises:
        ValueError: nothing in the definition waits for a task token.
    """
    definition: Machine = json.loads(path.read_text(encoding="utf-8"))
    waiting = [state for state in _states(definition) if state.get("Resource", "").endswith(".waitForTaskToken")]
    if not waiting:
        message = f"{path} has no task that waits for a token: nothing would ever be re-armed"
        raise ValueError(message)
    for state in waiting:
        if isinstance(state.get("TimeoutSeconds"), int):
            state["TimeoutSeconds"] = rearm_seconds
    for state in _states(definition):
        if "rearm_seconds" in state.get("ItemSelector", {}):
            state["ItemSelector"]["rearm_seconds"] = rearm_seconds
        if "Resource" in state:
            state["Resource"] = state["Resource"].replace("arn:aws:", "arn:${Partition}:", 1)
        for retry in state.get("Retry", []) if snap_start else []:
            if _THROTTLED in retry["ErrorEquals"]:
                retry["ErrorEquals"] += _SNAPSHOT_ERRORS
    return definition


def _states(machine: Machine) -> Iterator[State]:
    for state in machine["States"].values():
        yield state
        if "ItemProcessor" in state:
            yield from _states(state["ItemProcessor"])
