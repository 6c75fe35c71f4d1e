"""How the processes of a replica exchange values, and act as one: all succeed, or all raise the same error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from muster.contract.errors import MusterError
from muster.replica.codecs.base import Floats
from muster.replica.parts.cut import Cut
from muster.replica.replica_errors import GroupError, RoundGoneError
from muster.replica.store.transport import ObjectMissingError

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)


class Link(Protocol):
    """Connects the processes of a replica. Every call is collective: all processes make the same calls in order.

    Raises GroupError if a process has ended.
    """

    rank: int
    size: int

    def gather(self, value: object) -> list[Any]:
        """The small `value` of each process, by rank."""

    def swap(self, sends: Sequence[NDArray[N]], counts: Sequence[int]) -> list[NDArray[N]]:
        """Send `sends[r]` to process r; returns what each process has sent to this one: `counts[r]` values of r.

        All values are of one type: float32 or bytes.
        """


class Alone:
    """The link of a replica with one process."""

    rank = 0
    size = 1

    def gather(self, value: object) -> list[Any]:
        """Its own value."""
        return [value]

    def swap(self, sends: Sequence[NDArray[N]], counts: Sequence[int]) -> list[NDArray[N]]:  # noqa: ARG002 - the same
        """Its own values."""
        return list(sends)


class _Failure:
    """An error as another process raises it: its type, its words and its fields."""

    def __init__(self, rank: int, error: Exception) -> None:
        self.rank = rank
        self.is_gone = isinstance(error, RoundGoneError | ObjectMissingError)
        is_known = isinstance(error, MusterError)
        self._kind: type[Exception] = type(error) if is_known else GroupError
        self._words = str(error) if is_known else f"process {rank} of this replica failed: {error!r}"
        self._fields = vars(error) if is_known else {}

    def error(self) -> Exception:
        """The error, to be raised by this process."""
        made = self._kind.__new__(self._kind)
        Exception.__init__(made, self._words)
        vars(made).update(self._fields)
        return made


def jointly(link: Link, action: Callable[[], T]) -> T:
    """What `action` returns in this process, once it has returned in all.

    Raises:
        what it raised, in this process or in another one.
    """
    return _result(link, action, lambda _: None)[0]


def each(link: Link, action: Callable[[], T]) -> list[T]:
    """What `action` returns in each process, by rank: small values. Raises as `jointly`."""
    return _result(link, action, lambda value: value)[1]


def by_first(link: Link, action: Callable[[], T]) -> T:
    """What `action` returns in the first process, in all of them: a small value. Raises as `jointly`."""
    return each(link, lambda: action() if link.rank == 0 else cast(T, None))[0]


def _result(link: Link, action: Callable[[], T], shared: Callable[[T], Any]) -> tuple[T, list[Any]]:
    if link.size == 1:
        own = action()
        return own, [own]
    failed: Exception | None = None
    result = cast(T, None)
    try:
        result = action()
    except GroupError:
        raise
    except Exception as error:
        failed = error
    answers = link.gather(shared(result) if failed is None else _Failure(link.rank, failed))
    failures = [answer for answer in answers if isinstance(answer, _Failure)]
    if failures:
        # All follow the same one. Data that are gone can be made up for, so every other error goes first.
        chosen = min(failures, key=lambda failure: failure.is_gone)
        raise failed if failed is not None and chosen.rank == link.rank else chosen.error()
    return result, answers


def collected(cut: Cut, values: Floats, wanted: Iterable[slice], link: Link) -> Iterator[Floats]:
    """The elements of each range of `wanted`, in the first process; no elements in the others. Collective.

    Args:
        values: what this process holds by `cut`.
    """
    nothing = np.empty(0, np.float32)
    for span in wanted:
        held = [list(replace(cut, rank=rank).within(span)) for rank in range(link.size)]
        own = [values[local] for _, local in held[link.rank]]
        if link.size == 1:
            yield own[0] if own else nothing
            continue
        sends = [np.concatenate([nothing, *own]), *[nothing] * (link.size - 1)]
        counts = [sum(within.stop - within.start for within, _ in pieces) for pieces in held]
        received = link.swap(sends, counts if link.rank == 0 else [0] * link.size)
        if link.rank:
            yield nothing
            continue
        whole = np.empty(span.stop - span.start, np.float32)
        for pieces, found in zip(held, received, strict=True):
            start = 0
            for within, _ in pieces:
                whole[within] = found[start : start + within.stop - within.start]
                start += within.stop - within.start
        yield whole
