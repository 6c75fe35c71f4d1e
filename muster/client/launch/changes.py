"""Changes of a spec at its launch: `kwargs.lr=3e-4` sets one value, by its path, and leaves the file as it is."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from muster.client.client_errors import OptionError
from muster.contract.errors import SpecError, StatedProblem
from muster.contract.spec.private_values import kind_of


def read_changes(words: Iterable[str]) -> dict[str, object]:
    """Those of a command line: `path=value` each, with a value as a spec's YAML has it; nothing is null.

    Raises:
        OptionError: a word has no path, or its value is no YAML.
    """
    from muster.contract.spec.yaml_text import load_yaml  # noqa: PLC0415

    changes: dict[str, object] = {}
    for word in words:
        path, equals, text = word.partition("=")
        if not path or not equals:
            raise OptionError(word, "write path=value, such as kwargs.lr=3e-4", "a change of the spec")
        try:
            changes[path] = load_yaml(text) if text.strip() else None
        except ValueError as error:
            raise OptionError(word, f"its value is no YAML: {error}", "a change of the spec") from None
    return changes


def with_changes(document: Mapping[Any, object], changes: Mapping[str, object]) -> dict[Any, object]:
    """The spec with a value at each path; a part of a path is a key, or the number of an item. Missing keys are made.

    Raises:
        SpecError: a path leads through something that has no parts.
    """
    changed: dict[Any, object] = dict(copy.deepcopy(document))
    for path, value in changes.items():
        *before, last = path.split(".")
        place: Any = changed
        for index, part in enumerate(before):
            place = _part(place, part, ".".join(before[: index + 1]))
        if isinstance(place, list):
            place[_number(place, last, path)] = value
        else:
            place[last] = value
    return changed


def _part(place: Any, part: str, path: str) -> Any:
    """The mapping or list at a part of a path; a mapping is made where there is nothing."""
    if isinstance(place, list):
        found = place[_number(place, part, path)]
    else:
        if place.get(part) is None:
            place[part] = {}
        found = place[part]
    if not isinstance(found, dict | list):
        raise SpecError([StatedProblem(path, f"{kind_of(found)}, which has no parts", "set it as a whole")])
    return found


def _number(items: list[object], part: str, path: str) -> int:
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    statement = f"a list of {len(items)} items has no {part!r}"
    raise SpecError([StatedProblem(path, statement, "number its items from 0, or set it as a whole")])
