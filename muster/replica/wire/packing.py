"""Named arrays and one flat buffer: one object and one checksum per round, however many tensors there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from muster.contract.document import digest
from muster.replica.errors import ParametersError
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Alone, Link
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
        self.count = sum(prod(shape) for shape in self._shapes.values())
        self.optimized = self.count - averaged
        self._cut: Cut | None = None
        problems = list(problems)
        if not problems and self.count == 0:
            problems.append("there are no parameters")
        if object_bytes(self.count) > OBJECT_BYTES_MAX:
            problems.append(f"{self.count:,} elements do not fit into an object of {OBJECT_BYTES_MAX:,} bytes")
        if problems:
            raise ParametersError("The parameters cannot be trained: " + "; ".join(problems) + ".")

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
        names = list(self._shapes)
        start = sum(prod(self._shapes[before]) for before in names[: names.index(name)])
        return slice(start, start + prod(self._shapes[name]))

    @property
    def layout(self) -> str:
        """Digest of names and shapes; replicas that train the same model agree on it."""
        return digest([[name, list(shape)] for name, shape in self._shapes.items()])

    @abstractmethod
    def read(self, part: slice = WHOLE) -> Floats:
        """A flat copy of a part of the arrays: of what this process holds."""

    @abstractmethod
    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite a part of the arrays, in all processes with what each of them holds."""

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:  # noqa: ARG002 - for types other than float32
        """`flat` rounded to the arrays' types; `flat` itself if they are float32."""
        return flat

    def pieces(self, part: slice) -> Iterator[Piece]:
        """The pieces of arrays that lie in `part`."""
        begin, end, _ = part.indices(self.count)
        start = 0
        for name, shape in self._shapes.items():
            stop = start + prod(shape)
            first, last = max(start, begin), min(stop, end)
            if first < last or (start == stop and begin <= start < end):
                yield Piece(name, slice(first - start, last - start), slice(first - begin, last - begin))
            start = stop
