"""Named arrays and one flat buffer: one object and one checksum per round, however many tensors there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from muster.contract.document import digest
from muster.replica.codecs.base import Codec
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Alone, Link
from muster.replica.replica_errors import ParametersError
from muster.replica.store.transport import OBJECT_BYTES_MAX
from muster.replica.wire.binary_format import Floats, object_bytes

WHOLE = slice(0, None)


@dataclass(frozen=True)
class Piece:
    """Elements `local` of the array `name`, flattened, which lie at `place` in a part of the flat buffer."""

    name: str
    local: slice
    place: slice


class Packing(ABC):
    """The trainer's own arrays, read and written in place, and their places in the flat float32 buffer.

    `link` connects the processes of the replica, for the thread that reads and writes.
    """

    link: Link = Alone()

    def __init__(self, shapes: Mapping[str, Sequence[int]], problems: Sequence[str] = (), averaged: int = 0) -> None:
        """Lay the arrays out in the order given.

        Args:
            problems: what is already known to be wrong with them.
            averaged: how many elements at the end of the buffer are statistics, which are averaged, not optimized.

        Raises:
            ParametersError: lists everything that is wrong with them.
        """
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._ends = list(accumulate(map(prod, self._shapes.values())))
        self.count = self._ends[-1] if self._ends else 0
        places = (slice(start, stop) for start, stop in pairwise([0, *self._ends]))
        self._names = list(self._shapes)
        self._spans = dict(zip(self._names, places, strict=True))
        self.averaged = averaged
        self._cut: Cut | None = None
        problems = list(problems)
        if not problems and self.count == 0:
            problems.append("there are no parameters")
        if object_bytes(self.count) > OBJECT_BYTES_MAX:
            problems.append(f"{self.count:,} elements do not fit into an object of {OBJECT_BYTES_MAX:,} bytes")
        if problems:
            raise ParametersError("The parameters cannot be trained: " + "; ".join(problems) + ".")

    def cut_for(self, codec: Codec, fragments: int) -> Cut:
        """What this process holds in an exchange by `codec`, which leaves statistics as they are."""
        return Cut(self.count, codec, fragments, self.link.rank, self.link.size, self.averaged)

    def divide(self, cut: Cut) -> None:
        """From now on parts have the elements that this process holds by `cut`."""
        self._cut = cut

    @property
    def cut(self) -> Cut:
        """Which elements this process holds: all, unless the replica has several processes."""
        return Cut(self.count) if self._cut is None else self._cut

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array, in the order of the flat buffer."""
        return dict(self._shapes)

    def span(self, name: str) -> slice:
        """The elements of an array."""
        return self._spans[name]

    @property
    def layout(self) -> str:
        """Digest of names and shapes; replicas that train the same model agree on it."""
        return digest([[name, list(shape)] for name, shape in self._shapes.items()])

    @abstractmethod
    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        """A flat copy of a part of the arrays: of what this process holds. It is made in `room`, or in new memory."""

    @abstractmethod
    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite a part of the arrays, in all processes with what each of them holds."""

    def lock(self, flat: Floats) -> None:  # noqa: B027 - for arrays on devices
        """Expect to read into the memory of `flat`, or to write from it, in every round."""

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:  # noqa: ARG002 - for types other than float32
        """`flat` rounded to the arrays' types; `flat` itself if they are float32."""
        return flat

    def pieces(self, part: slice) -> Iterator[Piece]:
        """The pieces of arrays that lie in `part`."""
        begin, end, _ = part.indices(self.count)
        if begin >= end:
            return
        # Those without elements are in the part where they lie.
        for name in self._names[bisect_left(self._ends, begin) : bisect_right(self._ends, end) + 1]:
            start, stop = self._spans[name].start, self._spans[name].stop
            first, last = max(start, begin), min(stop, end)
            if first < last or (start == stop and begin <= start < end):
                yield Piece(name, slice(first - start, last - start), slice(first - begin, last - begin))
