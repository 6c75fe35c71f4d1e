"""The workflow's definition as it is deployed: the file, armed. Needs no CDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def armed_definition(path: Path, rearm_seconds: int) -> dict[str, Any]:
    """The definition in the file `path`, with the re-arm period as TimeoutSeconds of every wait for a task token.

    A number literal: the embedded cloud evaluates no expression there.

    Raises:
        ValueError: nothing in the definition waits for a task token.
    """
    definition: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    waiting = [state for state in _states(definition) if state.get("Resource", "").endswith(".waitForTaskToken")]
    if not waiting:
        message = f"{path} has no task that waits for a token: nothing would ever be re-armed"
        raise ValueError(message)
    for state in waiting:
        state["TimeoutSeconds"] = rearm_seconds
    return definition


def _states(machine: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for state in machine["States"].values():
        yield state
        if "ItemProcessor" in state:
            yield from _states(state["ItemProcessor"])
