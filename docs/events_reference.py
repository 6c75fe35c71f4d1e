"""The text of docs/events.md, from the models in muster/contract/run/run_events.py."""

from __future__ import annotations

import inspect
import types
import typing
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run import run_events
from muster.contract.run.run_events import Event, RunRequested, ScaleRequested
from muster.contract.timestamps import Timestamp

_HEAD = f"""# Events

*Generated from `muster/contract/run/run_events.py` by `python -m docs.generate`; a test checks that it is up to date.*

The stack has its own EventBridge bus (output `EventBusName`). Muster emits an event on this bus, with the source
`{run_events.SOURCE}`, after each step of a run. You can also start a run with an event on the bus. To receive events in
your own function, queue, topic or bus, add a rule to the bus.

**An event may be lost or delivered twice.** The control plane continues if it cannot send an event, because the
state of a run is in its execution and its result. Copies of an event have the same `id` in their detail; use it as
the deduplication key. (The `id` of the envelope is EventBridge's own, and differs.) The order of delivery is not
guaranteed. Sort events by `at`.

**Versions.** Every detail has the field `version`, currently {run_events.EVENT_VERSION}. Within a version, fields may
be added, but no field is renamed, removed or given another type. Ignore fields that you do not know.

```json
{{
  "source": "{run_events.SOURCE}",
  "detail-type": "Replica Rerun",
  "detail": {{
    "version": 1, "id": "6fd9…", "at": "2026-05-04T10:12:13.456Z", "run": "bert-large-7", "rank": 3, "attempt": 1,
    "failure_class": "infrastructure", "reason": "InternalServerError: …", "delay_seconds": 0
  }}
}}
```
"""

_WORDS: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    Timestamp: "time",
    FailureClass: "a class of [failures.md](failures.md)",
}


def events_reference() -> str:
    """The text of docs/events.md."""
    sections = [_HEAD, "## Events that Muster emits\n"]
    for event in run_events.OUT:
        known = ", ".join(f"`{name}`" for name in event.identity)
        sections += [f"### {event.detail_type}\n", f"{_about(event)} One event for each {known}.\n", _table(event)]
    sections += [
        f"## An event that starts a run: {run_events.RUN_REQUESTED}\n",
        f"{_about(RunRequested)}\n",
        _table(RunRequested),
        f"## An event that scales a run: {run_events.SCALE_REQUESTED}\n",
        f"{_about(ScaleRequested)} The event's `time` says which of several is the [newest](elastic.md#seats).\n",
        _table(ScaleRequested),
    ]
    return "\n".join(sections)


def _about(model: type[Event | RunRequested | ScaleRequested]) -> str:
    return inspect.getdoc(model) or ""


def _table(model: type[Event | RunRequested | ScaleRequested]) -> str:
    rows = ["| field | value | meaning |", "|---|---|---|"]
    if issubclass(model, Event):
        rows.append("| `id` | text | deduplication key: the same for every copy |")
    rows += [f"| `{name}` | {_value(field)} | {field.description} |" for name, field in model.model_fields.items()]
    return "\n".join(rows) + "\n"


def _value(field: FieldInfo) -> str:
    return _type(field.annotation)


def _type(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return f"{_type(arguments[0])}, may be missing"
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    return _WORDS.get(annotation, "mapping")
