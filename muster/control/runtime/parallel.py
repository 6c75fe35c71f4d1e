"""Many calls in parallel, with a limit on how many run at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 16


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of every item, in the order of the items. All items are processed, even if some fail.

    Raises:
        Exception: the first error, after all items were processed.
    """
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]
