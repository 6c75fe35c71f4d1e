"""Many calls in parallel, with a limit on how many run at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from muster.control.runtime.clock import TimeBudget

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 16


class OutOfTimeError(Exception):
    """The time budget was spent before everything was done; a later call has time of its own."""


def in_parallel(function: Callable[[T], R], items: Iterable[T], budget: TimeBudget | None = None) -> list[R]:
    """`function` of every item, in the order of the items. All items are processed, even if some fail.

    With a `budget`, no item is begun once it is spent.

    Raises:
        OutOfTimeError: items were left out because the budget was spent.
        Exception: the first error, after all items were processed.
    """

    def in_time(item: T) -> R:
        if budget is not None and budget.is_spent:
            message = "the time was spent before all calls were made"
            raise OutOfTimeError(message)
        return function(item)

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        futures = [pool.submit(in_time, item) for item in items]
    answers: list[R] = []
    errors: list[Exception] = []
    for future in futures:
        try:
            answers.append(future.result())
        except Exception as error:
            errors.append(error)
    if errors:
        # What was not begun comes before what failed: a throttled call fails in the end because the time is spent.
        raise next((error for error in errors if isinstance(error, OutOfTimeError)), errors[0])
    return answers


def each_that_succeeds(
    function: Callable[[T], R], items: Iterable[T], errors: list[str], name: Callable[[T], str]
) -> list[R]:
    """`function` of every item for which it succeeds, in the order of the items. The others are named in `errors`."""

    def tried(item: T) -> list[R]:
        try:
            return [function(item)]
        except Exception as error:
            errors.append(f"{name(item)}: {error}")
            return []

    return [answer for answers in in_parallel(tried, items) for answer in answers]


def in_another_order(items: Iterable[T]) -> list[T]:
    """The items in a random order: what one call had no time for does not come last in the next one again."""
    return sorted(items, key=lambda _: random.uniform(0, 1))  # noqa: S311 - any order
