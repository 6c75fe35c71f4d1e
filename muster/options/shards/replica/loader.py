"""Map-style data sets of PyTorch, whose workers read ahead. What they have read counts when the trainer gets it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

from torch.utils.data import DataLoader, Sampler

from muster.contract.run.trained_data import Piece
from muster.options.shards.replica.course import Course, Opens, Row

_END = object()


class Loading(Sampler[list[int]]):
    """A data loader's batches, with the rows of which they are; its sampler is asked for rows ahead of them."""

    def __init__(self, course: Course, opens: Opens[int], size: int, dataset: Any, options: dict[str, Any]) -> None:
        """`opens`: the numbers of the examples in a use; `size`: those of a batch."""
        self._course, self._opens, self._size = course, opens, size
        self._sent: deque[Row[int] | None] = deque()  # None: its batch is not wanted any more
        self._left: Iterator[Row[int]] = iter(())
        self._batches: Iterator[Any] | None = None
        self._loader = DataLoader(
            dataset, batch_sampler=self, persistent_workers=options.get("num_workers", 0) > 0, **options
        )

    def __iter__(self) -> Iterator[list[int]]:
        """For each batch the numbers of its examples."""
        while (row := next(self._left, None)) is not None:
            self._sent.append(row)
            yield self._course.share(row)

    def renew(self) -> None:
        """See `Source`: batches on their way stay as far as they are the next ones still."""
        self._left = self._course.rows(self._opens, self._size)
        is_next = True
        for place, row in enumerate(self._sent):
            following = next(self._left, None) if is_next else None
            if is_next and row != following:
                is_next = False
                if following is not None:
                    self._left = chain([following], self._left)
            if not is_next:
                self._sent[place] = None

    def take(self) -> tuple[tuple[Piece, ...], Any] | None:
        """See `Source`."""
        while True:
            if self._batches is None:
                first = next(self._left, None)
                if first is None:
                    return None
                self._left = chain([first], self._left)
                self._batches = iter(self._loader)
            batch = next(self._batches, _END)
            if batch is _END:
                self._batches = None
            elif (row := self._sent.popleft()) is not None:
                return row.pieces, batch
