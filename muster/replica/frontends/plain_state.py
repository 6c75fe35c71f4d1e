"""A trainer's state as bytes, without pickle: nested dicts and lists of numbers, texts and arrays."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

_ARRAY = "__array__"
_TREE = "tree"


class Stateful(Protocol):
    """What PyTorch's optimizers, schedulers and stateful data loaders have."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to go on later."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Go on from there."""


def pack_plain(tree: Mapping[str, Any]) -> bytes:
    """Bytes of `tree`.

    Raises:
        TypeError: something in it is neither a dict, a list, a number, a text nor an array.
    """
    arrays: dict[str, Any] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
            arrays[str(len(arrays))] = np.asarray(value)
            return {_ARRAY: len(arrays) - 1}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        message = f"a trainer's state holds a {type(value).__name__}: only dicts, lists, numbers, texts and arrays fit"
        raise TypeError(message)

    text = json.dumps(plain(tree)).encode()
    file = io.BytesIO()
    # Typed as if its keyword options could be among the names.
    np.savez(file, **{_TREE: np.frombuffer(text, np.uint8)}, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack_plain(body: bytes) -> dict[str, Any]:
    """The tree that `pack_plain` made the bytes of; tuples have become lists."""
    with np.load(io.BytesIO(body), allow_pickle=False) as file:

        def full(value: Any) -> Any:
            if isinstance(value, dict):
                return file[str(value[_ARRAY])] if set(value) == {_ARRAY} else {k: full(v) for k, v in value.items()}
            return [full(item) for item in value] if isinstance(value, list) else value

        tree: dict[str, Any] = full(json.loads(file[_TREE].tobytes()))
    return tree
