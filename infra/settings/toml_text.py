"""Settings as TOML, which the standard library reads and does not write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from muster.infra.settings.stack_settings import NAMED_TABLES

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a settings file with these tables; a table without keys is left out."""
    parts = []
    for table, keys in tables.items():
        if table in NAMED_TABLES:
            parts += [_table(f"{table}.{_key(name)}", named) for name, named in keys.items()]
        elif keys:
            parts.append(_table(table, keys))
    return "\n".join(parts)


def _table(name: str, keys: Mapping[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{_key(key)} = {toml_value(value)}" for key, value in keys.items()), ""])


def toml_value(value: object) -> str:
    """A value on one line; `value` consists of mappings, lists, text, numbers and booleans."""
    if isinstance(value, Mapping):
        # TOML has no null. A spec's null means that the field is left out.
        items = (f"{_key(str(key))} = {toml_value(item)}" for key, item in value.items() if item is not None)
        return f"{{ {', '.join(items)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value)
    # TOML's basic strings have JSON's escapes, except for a surrogate pair: hence the characters as they are.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)
