"""Settings of a deployed stack against those of the next deployment. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.contract.document import digest
from muster.infra.settings.settings_file import fixed_tables
from muster.infra.settings.stack_settings import StackSettings, Tables

_SHOWN_MAX = 60
# What identifies a stack is no choice of a deployment.
_IDENTITY = "stack.name"


@dataclass(frozen=True)
class Change:
    """A setting with its deployed and its new value; None stands for the default."""

    key: str
    deployed: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.key, self.deployed)} -> {shown(self.key, self.new)}"


def setting_changes(deployed: Tables, new: Tables) -> tuple[Change, ...]:
    """Every setting whose value changes; a setting that is in neither has its default before and after."""
    before, after = _flat(deployed), _flat(new)
    changes = [Change(key, before.get(key), after.get(key)) for key in {**before, **after} if key != _IDENTITY]
    return tuple(change for change in changes if change.deployed != change.new)


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
