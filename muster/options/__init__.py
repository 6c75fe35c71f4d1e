"""What Muster can do beside its core: each option is a folder, with its part of every runtime.

The core knows no option. Where options can add something there is a *seam*: the core says what it takes, and asks here
what the options that are there offer. An option offers it in a module that is called as the seam, below its part of
the runtime, such as `muster.options.recipes.client.commands`. Without an option's folder the core does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TypeVar

T = TypeVar("T")


def offers(seam: str, kind: type[T]) -> Iterator[T]:
    """What the options offer for a seam: the `OFFER` of each one's module of that name, in the options' order by name.

    Args:
        seam: a runtime and a module, such as `client.commands`.
        kind: what the core takes there.

    Raises:
        TypeError: an option offers something else.
    """
    for name in _modules(seam):
        offer = import_module(name).OFFER
        if not isinstance(offer, kind):
            message = f"{name} offers {type(offer).__name__}, not {kind.__name__}"
            raise TypeError(message)
        yield offer


@cache
def _modules(seam: str) -> list[str]:
    """The options' modules of this name. To look for them reads folders, and functions ask with each request."""
    runtime = seam.partition(".")[0]
    options = [option.name for option in iter_modules(__path__, f"{__name__}.")]
    # The folder first: to find a module imports what it is in.
    there = [option for option in options if _is_there(f"{option}.{runtime}")]
    return [f"{option}.{seam}" for option in there if _is_there(f"{option}.{seam}")]


def _is_there(module: str) -> bool:
    return find_spec(module) is not None
