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
