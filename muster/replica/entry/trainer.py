"""The user's function: found by name, checked against the arguments it will get."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from muster.replica.errors import InputError

Trainer = Callable[..., object]


def load_trainer(name: str, kwargs: Mapping[str, Any]) -> Trainer:
    """Import `package.module:function` and see that it can be called as `function(context, **kwargs)`.

    Raises:
        InputError: no such module or function, a module that fails to import, or arguments it does not take.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError([f"the trainer {name} cannot be imported: {type(error).__name__}: {error}"]) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError([f"the trainer {name} cannot be imported: {module_name} has no function {function_name}"])
    try:
        inspect.signature(function).bind(object(), **kwargs)
    except TypeError as error:
        raise InputError([f"the trainer {name} does not take these arguments: {error}"]) from None
    return function  # type: ignore[no-any-return]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out, of the machine or of a GPU. PyTorch's error is known by name: it is not imported."""
    kinds = type(error).__mro__
    of_torch = any(kind.__name__ == "OutOfMemoryError" and kind.__module__.split(".")[0] == "torch" for kind in kinds)
    cause = error.__cause__
    return of_torch or isinstance(error, MemoryError) or (cause is not None and is_out_of_memory(cause))
