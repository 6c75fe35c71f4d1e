"""Where named arrays lie in the flat buffer."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.wire import packing
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import WHOLE, Packing

Shape = tuple[int, ...]
SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=2).map(tuple), min_size=1, max_size=9).filter(
    lambda shapes: any(prod(shape) for shape in shapes)
)


class Shapes(Packing):
    """Shapes without arrays."""

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        raise NotImplementedError

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        raise NotImplementedError


@given(shapes=SHAPES, data=st.data())
def test_a_part_has_the_pieces_of_the_arrays_that_lie_in_it(shapes: list[Shape], data: st.DataObject) -> None:
    arrays = Shapes({f"a{number}": shape for number, shape in enumerate(shapes)})
    owners = [name for name in arrays.shapes for _ in range(prod(arrays.shapes[name]))]
    for name in arrays.shapes:
        span = arrays.span(name)
        assert owners[span] == [name] * prod(arrays.shapes[name])
    begin = data.draw(st.integers(0, arrays.count))
    end = data.draw(st.integers(begin, arrays.count))
    pieces = list(arrays.pieces(slice(begin, end)))
    covered = [piece.name for piece in pieces for _ in range(piece.place.stop - piece.place.start)]
    assert covered == owners[begin:end]
    for piece in pieces:
        start = arrays.span(piece.name).start
        assert (piece.local.start + start, piece.local.stop + start) == (
            piece.place.start + begin,
            piece.place.stop + begin,
        )
    # A tensor without elements is in the one part where it lies.
    empty = [name for name, shape in arrays.shapes.items() if not prod(shape)]
    parts = [slice(0, begin), slice(begin, end), slice(end, arrays.count)]
    found = [piece.name for part in parts for piece in arrays.pieces(part) if piece.name in empty]
    assert len(found) == len(set(found))


def test_the_place_of_an_array_is_looked_up_and_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Shapes({f"a{index}": (1,) for index in range(1_000)})
    monkeypatch.delattr(packing, "prod")
    assert [arrays.span(f"a{index}").start for index in range(1_000)] == list(range(1_000))
    assert [piece.name for piece in arrays.pieces(slice(500, 502))] == ["a500", "a501"]
