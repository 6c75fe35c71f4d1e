"""Settings of a deployed stack against those of a file: what is kept, and what changes. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from muster.contract.document import digest
from muster.contract.errors import Problem, SettingsError, StatedProblem
from muster.infra.settings.settings_file import Tables, fixed_tables
from muster.infra.settings.stack_settings import StackSettings

_SHOWN_MAX = 60
# Each of these excludes the other: a file that sets one replaces a deployed other.
_EXCLUSIVE = (
    ("bucket.name", "bucket.existing"),
    ("bucket.access_logs_bucket", "bucket.existing"),
    ("bucket.access_logs_prefix", "bucket.existing"),
)
# What identifies a stack is no choice of a deployment.
IDENTITY = "stack.name"


@dataclass(frozen=True)
class Change:
    """A setting with its deployed and its new value; None stands for the default."""

    key: str
    deployed: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {shown(self.key, self.deployed)} -> {shown(self.key, self.new)}"


@dataclass(frozen=True)
class Merged:
    """The settings of the next deployment: `kept` are the keys that only the deployed stack has."""

    tables: dict[str, dict[str, Any]]
    kept: tuple[str, ...]
    changes: tuple[Change, ...]


def merge(deployed: Tables | None, file: Tables, reset: Sequence[str]) -> Merged:
    """The file's settings, and those of the deployed stack that the file leaves out.

    `deployed` is None where there is no stack. The keys in `reset` (`table.key`) get their defaults.

    Raises:
        SettingsError: a key of `reset` is unknown, or the file sets it; or this version does not know a kept setting.
    """
    before, given = _flat(deployed or {}), _flat(file)
    _check_reset(reset, given, before)
    replaced = {old for pair in _EXCLUSIVE for old, new in (pair, pair[::-1]) if new in given and old not in given}
    kept = {
        key: value
        for key, value in before.items()
        if key not in given and key not in replaced and key not in reset and key != IDENTITY
    }
    _check_kept(kept)
    after = {**kept, **given}
    keys = [key for key in (*before, *given) if key != IDENTITY]
    changes = [Change(key, before.get(key), after.get(key)) for key in dict.fromkeys(keys)]
    return Merged(_nested(after), tuple(kept), tuple(change for change in changes if change.deployed != change.new))


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


def _check_reset(reset: Sequence[str], given: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    known = [f"{table}.{key}" for table, model in fixed_tables().items() for key in model.model_fields]
    known = [key for key in (*known, *before) if key != IDENTITY]
    problems: list[Problem] = []
    for key in reset:
        if key in given:
            problems.append(StatedProblem(key, "the file sets it", "remove it from the file, or leave out --reset"))
        elif key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else "write table.key, such as notify.email"
            problems.append(StatedProblem(key, "unknown key", remedy))
    if problems:
        option = "--reset"
        raise SettingsError(option, problems)


def _check_kept(kept: Mapping[str, Any]) -> None:
    """Refuse deployed settings that this version does not know: the mistake is in no file."""
    try:
        StackSettings.model_validate(_nested(kept))
    except ValidationError as error:
        places = [tuple(map(str, item["loc"])) for item in error.errors(include_url=False)]
    else:
        return
    unknown = [
        key for key in kept if any(key == ".".join(place[:2]) or place == (key.partition(".")[0],) for place in places)
    ]
    problems = [
        StatedProblem(
            key,
            "another version deployed this setting, and this one does not know it in this form",
            f"deploy with a newer version, or give the setting up with --reset {key}",
        )
        for key in unknown
    ]
    name = "The deployed settings"
    raise SettingsError(name, problems)


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


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        table, _, key = name.partition(".")
        nested.setdefault(table, {})[key] = value
    return nested
