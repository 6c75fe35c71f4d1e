"""Values in what AWS or Kubernetes has answered, or a replica has written: of any kind until they are looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muster.contract.text import shortened


def strict_json(text: str | bytes, *, unique: bool = True) -> Any:
    """What a JSON text says; `unique`: no object may have a name twice.

    Raises:
        ValueError, RecursionError: it cannot be read, or has a number that JSON does not have.
    """
    return json.loads(text, object_pairs_hook=_unique if unique else None, parse_constant=_refuse_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            message = f"duplicate field {json.dumps(name[:64])}"
            raise ValueError(message)
        found[name] = value
    return found


def _refuse_constant(text: str) -> float:
    message = f"{text} is no number of JSON"
    raise ValueError(message)


def mapping_of(value: object) -> Mapping[str, object]:
    """The mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings_of(value: object) -> list[Mapping[str, object]]:
    """The mappings of a list; none for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def line_of(value: object, most: int) -> str:
    """The text on one line of at most `most` characters; an empty one for anything else."""
    return shortened(" ".join(value.split()), most) if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
