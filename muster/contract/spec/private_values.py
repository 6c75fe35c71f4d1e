"""The fields of a spec whose values may be secret: errors, pages and events show their names and types only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import JsonValue

PROGRAM_FIELDS = frozenset({"arguments", "entrypoint", "environment", "hyper_parameters", "kwargs"})
"""What the user's program reads."""
_PRIVATE = PROGRAM_FIELDS | {
    "collection_parameters",
    "hook_parameters",
    "profiling_parameters",
    "rule_parameters",
}
_SECRET = re.compile(
    r"(^|[_.-])(token|secret|passw(or)?d|pwd|credentials?|api_?key|access_?key|private_?key|secret_?key)$",
    re.IGNORECASE,
)
_TOKEN_OF_TEXTS = re.compile(r"(^|[_.-])(bos|cls|eos|mask|pad|sep|stop|unk)_token$", re.IGNORECASE)
_TEXT_SHOWN = 80  # characters
_NUMBER_SHOWN = 10**20
_TYPES = {bool: "true or false", int: "a whole number", float: "a number"}


def is_private(location: Sequence[int | str]) -> bool:
    """Whether the value at this place of a spec may be secret; `overrides` have environments of their own."""
    return not _PRIVATE.isdisjoint(location)


def may_be_secret(name: str) -> bool:
    """Whether a value of this name, the last part of a path, may be secret."""
    return bool(_SECRET.search(name)) and not _TOKEN_OF_TEXTS.search(name)


def without_value(name: str) -> str:
    """The name of a private value: a user who writes `TOKEN=secret` for `TOKEN: secret` has both in the name."""
    begin = re.split(r"[=:\s]", name, maxsplit=1)[0]
    return name if begin == name else f"{begin}…"


def kind_of(value: object) -> str:
    """The type of a value in words, such as `a list of 3 values`."""
    if value is None:
        return "no value"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict | list | tuple):
        noun = "mapping" if isinstance(value, dict) else "list"
        return f"a {noun} of {len(value):,} value{'s' if len(value) > 1 else ''}" if value else f"an empty {noun}"
    return _TYPES.get(type(value), f"a {type(value).__name__}"[:40])


def shown(value: object) -> str:
    """A value as a message shows it: on one line, and cut where it is long; of a mapping or list, the type only."""
    if isinstance(value, str):
        text = repr(value[: _TEXT_SHOWN + 1])
        return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 3]}..."
    # A number may have too many digits to be written.
    short = value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _NUMBER_SHOWN)
    return repr(value) if short else kind_of(value)


def without_values(document: JsonValue) -> JsonValue:
    """A document, such as a plan, without the values of its private fields: the names and types are left."""
    if isinstance(document, dict):
        return {
            key: _hidden(item) if key in _PRIVATE and item is not None else without_values(item)
            for key, item in document.items()
        }
    if isinstance(document, list):
        return [without_values(item) for item in document]
    return document


def _hidden(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: f"({kind_of(item)}, not shown)" for key, item in value.items()}
    return f"({kind_of(value)}, not shown)"
