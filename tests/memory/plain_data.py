"""Copies of the documents that calls, answers and events are made of, without the price of `copy.deepcopy`."""

import copy
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_UNCHANGEABLE = {str, int, float, bool, bytes, type(None)}


def copied(value: _Value) -> _Value:
    """A copy that shares nothing that can change; of something that is in `value` twice, there are two."""
    own: _Value = _copied(value)
    return own


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if kind is list:
        return [_copied(item) for item in value]
    return copy.deepcopy(value)
