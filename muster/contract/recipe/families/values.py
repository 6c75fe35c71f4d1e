"""Reading a document that is not checked yet: a recipe's, or a spec's before it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue


def mapping_at(document: object, *path: str) -> Mapping[str, JsonValue]:
    """The mapping at `path`; an empty one where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, Mapping) else {}


def value_at(document: object, *path: str) -> JsonValue:
    """The value at `path`; None where there is none."""
    found: object = document
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found  # type: ignore[return-value]  # a part of a JSON document


def text_at(document: object, *path: str) -> str:
    """The text at `path`; an empty one where there is none."""
    found = value_at(document, *path)
    return found if isinstance(found, str) else ""


def as_text(value: JsonValue) -> str:
    """A value as a hyperparameter has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def leaf_names(document: JsonValue) -> Iterator[str]:
    """The names of all values of a recipe that are no mappings themselves."""
    pending: list[JsonValue] = [document]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            for name, item in found.items():
                if isinstance(item, dict) and item:
                    pending.append(item)
                else:
                    yield name
