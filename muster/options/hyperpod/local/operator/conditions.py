"""The conditions of a status. The last one that is True is what AWS's command line shows, so their order counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Condition = dict[str, str]


def with_condition(
    conditions: Iterable[Mapping[str, Any]] | None,
    kind: str,
    status: str,
    at: str,
    *,
    reason: str = "",
    message: str = "",
) -> list[Condition]:
    """The conditions with one changed. It keeps its time and place where its status, reason and message are the same.

    One that becomes True, or is new, moves to the end.
    """
    kept = [dict(item) for item in conditions or ()]
    old = next((item for item in kept if item["type"] == kind), None)
    new: Condition = {"type": kind, "status": status, "lastTransitionTime": at}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    if old is None:
        return [*kept, new]
    if old["status"] == status:
        if (old.get("reason", ""), old.get("message", "")) == (reason, message):
            return kept
        new["lastTransitionTime"] = old.get("lastTransitionTime", at)
    if status == "True" and old["status"] != "True":
        return [*(item for item in kept if item is not old), new]
    return [new if item is old else item for item in kept]


def without(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> list[Condition]:
    """The conditions without one."""
    return [dict(item) for item in conditions or () if item["type"] != kind]
