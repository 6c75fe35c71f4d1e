"""Many calls at once, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 16


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of every item, in the items' order. One that fails keeps no other from its turn.

    Raises:
        Exception: the first error, once all have had their turn.
    """
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]
