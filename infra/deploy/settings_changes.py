"""Settings of a deployed stack against those of the next deployment, and which of them runs depend on. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import Field, JsonValue

from muster.contract.document import Document, digest
from muster.infra.settings.settings_file import fixed_tables
from muster.infra.settings.stack_settings import StackSettings, Tables

_SHOWN_MAX = 60
# What identifies a stack is no choice of a deployment.
_IDENTITY = "stack.name"

_ROLE = "replicas.role_arn"
# The stack's roles are allowed the use of these alone, and reruns use those of their plan.
_ALLOWED = ("replicas.vpc", "replicas.kms_key_arn")
_REPLICAS = "replicas."
_PREFIXES = "replicas.data"
_CLUSTERS = "hyperpod_clusters."
# The definition of a running execution names the functions as they were called when it began: with an alias or without.
_CALLED = "runs.snap_start"
STACK_KEY = "stack.kms_key_arn"


class SettingChange(Document):
    """A setting that a deployment changes."""

    key: str = Field(description="table.key of the settings file")
    deployed: JsonValue = Field(description="the deployed value; null for the default")
    new: JsonValue = Field(description="the new value; null for the default")

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.key, self.deployed)} -> {shown(self.key, self.new)}"


def setting_changes(deployed: Tables, new: Tables) -> tuple[SettingChange, ...]:
    """Every setting whose value changes; a setting that is in neither has its default before and after."""
    before, after = _flat(deployed), _flat(new)
    return tuple(
        SettingChange(key=key, deployed=before.get(key), new=after.get(key))
        for key in {**before, **after}
        if key != _IDENTITY and before.get(key) != after.get(key)
    )


def shown(key: str, value: Any) -> str:
    """A value as a line shows it. A spec may hold the values of environment variables, so only its names are shown."""
    if value is None:
        return "the default"
    if key.startswith("schedules."):
        spec = value.get("spec")
        what = value.get("spec_key") or f"a spec of {', '.join(sorted(spec or {}))} ({digest(spec)[:8]})"
        return f"{value.get('at')}, {what}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({digest(value)[:8]})"


def values(settings: StackSettings) -> Iterator[tuple[str, Any]]:
    """Every key with its value, defaults included; None where nothing is set."""
    for table, model in fixed_tables().items():
        found = getattr(settings, table).model_dump(mode="json")
        yield from ((f"{table}.{key}", found[key]) for key in model.model_fields)
    for name, schedule in settings.schedules.items():
        yield f"schedules.{name}", schedule.model_dump(mode="json", exclude_none=True)
    for name, cluster in settings.hyperpod_clusters.items():
        yield f"hyperpod_clusters.{name}", cluster.model_dump(mode="json", exclude_unset=True)
    for name, place in settings.places.items():
        yield f"places.{name}", place.model_dump(mode="json", exclude_unset=True)


def version_change(deployed: str | None, new: str) -> str | None:
    """A line on a deployment of another version than the deployed one; None where it is the same or unknown."""
    if deployed is None or deployed == new:
        return None
    if _release(new) < _release(deployed):
        return f"WARNING: version {deployed} is deployed, this is the older {new}."
    return f"Version: {deployed} -> {new}"


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def _flat(tables: Tables) -> dict[str, Any]:
    return {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}


def pinned_changes(deployed: Tables, new: Tables) -> list[SettingChange]:
    """The changes that would take from running runs what their reruns need.

    A network or a key where there was none, or a longer list, takes nothing from them.
    """
    return [change for change in setting_changes(deployed, new) if _is_pinned(change)]


def stack_key_change(deployed: Tables, new: Tables) -> SettingChange | None:
    """The change of the stack's key, which would leave the objects under the former key unreadable for its roles."""
    changes = setting_changes(deployed, new)
    return next((change for change in changes if change.key == STACK_KEY and change.deployed), None)


def _is_pinned(change: SettingChange) -> bool:
    if change.key == _CALLED:
        return bool(change.deployed) != bool(change.new)
    if change.key in _ALLOWED:
        return bool(change.deployed)
    if change.key.startswith(_REPLICAS) and isinstance(change.deployed, list):
        return _removes(change)  # each entry allows something that a plan may name
    if change.key.startswith(_CLUSTERS):
        return change.deployed is not None and _takes_place(change)
    return change.key == _ROLE


def _takes_place(change: SettingChange) -> bool:
    """Whether a cluster is gone, has another EKS cluster, or lacks a namespace in which replicas may run."""
    before: Any = change.deployed
    after: Any = change.new or {}
    if before.get("eks_cluster") != after.get("eks_cluster"):
        return True
    return not set(before.get("namespaces", ())) <= set(after.get("namespaces", ()))


def _removes(change: SettingChange) -> bool:
    """Whether an entry of a list is gone and, for a prefix, no other covers it."""
    before: Any = change.deployed or []
    kept: Any = change.new or []
    covers = str.startswith if change.key == _PREFIXES else str.__eq__
    return not all(any(covers(entry, other) for other in kept) for entry in before)
