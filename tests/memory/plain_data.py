"""Copies of the documents that calls, answers and events are made of, without the price of `copy.deepcopy`."""

from __future__ import annotations

import copy
from typing import Any

_UNCHANGEABLE = {str, int, float, bool, bytes, type(None)}


def copied(value: Any) -> Any:
    """A copy that shares nothing that can change; of something that is in `value` twice, there are two."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return copy.deepcopy(value)
