"""Values in what AWS or Kubernetes has answered, or a replica has written: of any kind until they are looked at."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.text import shortened


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
