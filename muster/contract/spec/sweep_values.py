"""The values of a sweep as they are shown side by side. Pure, and free of the modules of specs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from muster.contract.text import shortened

if TYPE_CHECKING:
    from pydantic import JsonValue

FIELDS = ("kwargs", "hyper_parameters", "environment")
"""The fields of a spec that can be swept."""
_VALUE_MAX = 60  # characters
_LESS = re.compile(r"loss|error|perplexity|\bppl|mae|mse|\bwer|\bcer", re.IGNORECASE)
_MORE = re.compile(r"accuracy|\bacc|f1|auc|precision|recall|reward|score|bleu|rouge|r2|win_rate", re.IGNORECASE)


def of_spec(name: str) -> bool:
    """Whether `name` is a field of the spec; otherwise it is a value of the recipe."""
    return name.partition(".")[0] in FIELDS and "." in name


def in_order(names: Iterable[str]) -> list[str]:
    """The names of a sweep, those of the recipe first. Stored documents keep no order."""
    return sorted(names, key=lambda name: (of_spec(name), name))


def values_of(sweep: Mapping[str, Sequence[JsonValue]], rank: int) -> dict[str, JsonValue]:
    """What differs: the values of `rank` by name, those of the recipe first.

    Names with the same values in all ranks are one: what a recipe's value is in the spec need not be shown again.
    """
    seen: list[Sequence[JsonValue]] = []
    found: dict[str, JsonValue] = {}
    for name in in_order(sweep):
        values = sweep[name]
        if values not in seen and rank < len(values):
            seen.append(values)
            found[name] = values[rank]
    return found


def value_text(value: JsonValue) -> str:
    """A value in one short line: a text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(" ".join(text.split()), _VALUE_MAX)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Each name by as few of its last parts as no other name ends with: `lr` for `training_config.optim.lr`."""
    listed = list(names)
    return {name: _short(name, listed) for name in listed}


def _short(name: str, others: Sequence[str]) -> str:
    parts = name.split(".")
    for count in range(1, len(parts)):
        short = ".".join(parts[-count:])
        if sum(other == short or other.endswith(f".{short}") for other in others) == 1:
            return short
    return name


def best_rank(name: str, values: Mapping[int, float]) -> int | None:
    """The rank with the best value of a metric. None where the name does not say what is better, or several have it."""
    less, more = _LESS.search(name), _MORE.search(name)
    known = {rank: value for rank, value in values.items() if value == value}  # noqa: PLR0124 - not NaN
    if len(known) < 2 or (less is None) == (more is None):
        return None
    best = min(known.values()) if less else max(known.values())
    ranks = [rank for rank, value in known.items() if value == best]
    return ranks[0] if len(ranks) == 1 else None
