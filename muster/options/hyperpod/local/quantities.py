"""Kubernetes' quantities: `500m` of a processor, `16Gi` of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
Amounts = Mapping[str, Fraction]
"""An amount of each resource: cpu in processors, memory in bytes."""


def quantity(value: object) -> Fraction:
    """The number that a quantity stands for.

    Raises:
        ValueError: it is none.
    """
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        message = f"{value!r} is no quantity"
        raise ValueError(message)
    number, suffix = Fraction(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Fraction(1 << 10 * _BINARY[suffix])
    exponent = int(suffix[1:]) if suffix[:1] in {"e", "E"} and len(suffix) > 1 else _DECIMAL.get(suffix, 0)
    return number * (Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent))


def total(parts: Iterable[Amounts]) -> dict[str, Fraction]:
    """The sum of amounts."""
    found: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, Fraction(0)) + amount
    return found


def times(part: Amounts, count: int) -> dict[str, Fraction]:
    """`count` times the amounts."""
    return {name: amount * count for name, amount in part.items()}


def lacking(wanted: Amounts, free: Amounts) -> list[str]:
    """The resources of which less is free than wanted."""
    return sorted(name for name, amount in wanted.items() if amount > free.get(name, Fraction(0)))


def requests_of(pod_spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """What a pod asks for: the requests of its containers, or their limits where those are all that is given."""
    found = []
    for container in pod_spec.get("containers", ()):
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        found.append({name: quantity(value) for name, value in asked.items()})
    return {**total(found), "pods": Fraction(1)}
