"""Reading a document that is not checked yet: a recipe's, or a spec's before it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

from muster.options.recipes.contract.resolved_recipe import Path


def value_at(document: object, *path: str | int) -> JsonValue:
    """The value at `path`; None where there is none."""
    found = document
    for part in path:
        if isinstance(found, Mapping):
            found = found.get(part)
        else:
            inside = isinstance(found, list) and isinstance(part, int) and part < len(found)
            found = found[part] if inside else None  # type: ignore[index]
    return found  # type: ignore[return-value]  # a part of a JSON document


def mapping_at(document: object, *path: str) -> Mapping[str, JsonValue]:
    """The mapping at `path`; an empty one where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, Mapping) else {}


def text_at(document: object, *path: str) -> str:
    """The text at `path`; an empty one where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, str) else ""


def as_text(value: JsonValue) -> str:
    """A value as a hyperparameter has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def copied(value: JsonValue, text: Callable[[str], str] = lambda one: one, *, in_order: bool = False) -> JsonValue:
    """A copy whose mappings and lists are objects of their own; `text` gives its texts, `in_order` sorts its names."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        items = sorted(value.items()) if in_order else value.items()
        return {key: copied(item, text, in_order=in_order) for key, item in items}
    return [copied(item, text, in_order=in_order) for item in value] if isinstance(value, list) else value


def leaves(document: JsonValue) -> Iterator[tuple[Path, JsonValue]]:
    """Every scalar, empty mapping and list, by its path, in order."""
    parts = everything_in(document, lists=False)
    return ((path, value) for path, value in parts if not isinstance(value, dict) or (path and not value))


def everything_in(document: JsonValue, above: Path = (), *, lists: bool = True) -> Iterator[tuple[Path, JsonValue]]:
    """The document and every value in it, by its path, in order; without `lists` those outside of lists."""
    pending: list[tuple[Path, JsonValue]] = [(above, document)]
    while pending:
        path, value = pending.pop()
        yield path, value
        if isinstance(value, dict):
            pending += [((*path, key), item) for key, item in reversed(value.items())]
        elif lists and isinstance(value, list):
            pending += [((*path, index), item) for index, item in reversed(list(enumerate(value)))]
