"""What Muster can do beside its core: each option is a folder, with its part of every runtime.

The core knows no option. Where options can add something there is a *seam*: the core says what it takes, and asks here
what the options that are there offer. An option offers it in a module that is called as the seam, below its part of
the runtime, such as `muster.options.recipes.client.commands`. Without an option's folder the core does without it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    for option in iter_modules(__path__, f"{__name__}."):
        runtime = f"{option.name}.{seam.partition('.')[0]}"
        if find_spec(runtime) is not None and find_spec(f"{option.name}.{seam}") is not None:
            offer = import_module(f"{option.name}.{seam}").OFFER
            if not isinstance(offer, kind):
                message = f"{option.name}.{seam} offers {type(offer).__name__}, not {kind.__name__}"
                raise TypeError(message)
            yield offer
