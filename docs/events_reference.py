"""The text of docs/events.md, from the models in muster/contract/run/events.py."""

from __future__ import annotations

import inspect
import types
import typing
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from muster.contract.run import events
from muster.contract.run.events import Event, RunRequested

_HEAD = f"""# Events

*Made from `muster/contract/run/events.py` by `python -m docs.generate`; a test holds that it is up to date.*

The stack has an EventBridge bus of its own; the output `EventBusName` names it. Everything that happens to a run is
told there with the source `{events.SOURCE}`, after it has happened, and a run can be asked for there. A rule on the bus
takes the events to your own function, queue, topic or another bus.

**An event may be lost, and it may come twice.** The control plane never fails because an event could not be sent: the
state of a run is in its execution and its result, and events only tell of it. Copies of an event have the same `id` in
their detail (the envelope's `id` is EventBridge's and differs). Order is not promised: sort by `at`.

**Versions.** Every detail has `version`, now {events.EVENT_VERSION}. Within a version fields may be added; none is
renamed, removed or given another type. Ignore what you do not know.

```json
{{
  "source": "{events.SOURCE}",
  "detail-type": "Replica Rerun",
  "detail": {{
    "version": 1, "id": "6fd9…", "at": "2026-05-04T10:12:13.456Z", "run": "bert-large-7", "rank": 3, "attempt": 1,
    "failure_class": "infrastructure", "reason": "InternalServerError: …", "delay_seconds": 0
  }}
}}
```
"""

_WORDS: dict[object, str] = {str: "text", int: "whole number"}


def events_reference() -> str:
    """The text of docs/events.md."""
    sections = [_HEAD, "## What Muster tells\n"]
    for event in events.OUT:
        known = ", ".join(f"`{name}`" for name in event.identity)
        sections += [f"### {event.detail_type}\n", f"{_about(event)} One for each {known}.\n", _table(event)]
    sections += [f"## What Muster is told: {events.RUN_REQUESTED}\n", f"{_about(RunRequested)}\n", _table(RunRequested)]
    return "\n".join(sections)


def _about(model: type[Event] | type[RunRequested]) -> str:
    return inspect.getdoc(model) or ""


def _table(model: type[Event] | type[RunRequested]) -> str:
    rows = ["| field | value | what it is |", "|---|---|---|"]
    if issubclass(model, Event):
        rows.append("| `id` | text | the same for every copy |")
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
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type):
        return "a class of [failures.md](failures.md)"
    return "mapping"
