"""What the trainer of one process takes next, row by row: a row is what the replica's processes train in one step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar

from muster.contract.run.commit import Commit
from muster.contract.run.trained_data import PIECES_MAX, TO_THE_END, DataProgress, Items, Piece, Use
from muster.options.shards.replica.deal import Place, dealt, order
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError
from muster.replica.rounds.phase_data import Lane

T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)

Opens = Callable[[Use, Items], Iterator[tuple[T, bool]]]
"""The items of a use from one on; with each, whether it is the last."""

_USES = PIECES_MAX // 2  # of a row, so that a contribution can always name it


@dataclass(frozen=True)
class Row(Generic[T]):
    """Items of one step, and the pieces of uses that they are."""

    items: tuple[T, ...]
    pieces: tuple[Piece, ...]


class Source(Protocol[V_co]):
    """Where the trainer's values come from."""

    def renew(self) -> None:
        """Uses were dealt anew: what was read ahead may be another replica's now."""

    def take(self) -> tuple[tuple[Piece, ...], V_co] | None:
        """The next value, and the pieces that it is; None if nothing is left of what was dealt."""


class Course:
    """The shards of one replica in their order. All processes of the replica come to the same rows."""

    def __init__(
        self, rendezvous: Rendezvous, total: int, stop: Use, seed: int, part: tuple[int, int] | None = None
    ) -> None:
        """`stop`: the use after the last one. `part`: this process's part of each row; None: by its rank."""
        self.total, self.stop = total, stop
        self._chosen = part
        self._rendezvous, self._data, self._seed = rendezvous, rendezvous.data, seed
        self._epoch = -1
        self._data.begin(total, self._deal)

    @property
    def progress(self) -> DataProgress:
        """What has counted by the last round that this replica has merged."""
        return self._data.progress or DataProgress(shards=self.total)

    def _deal(self, commit: Commit | None) -> Lane:
        progress = (None if commit is None else commit.data_after) or DataProgress(shards=self.total)
        if progress.shards != self.total:
            message = f"total is {self.total:,}; allowed: {progress.shards:,}, the shards with which the run was begun."
            raise ParametersError(message)
        place = Place.after(commit, self._rendezvous.rank, self._rendezvous.context.quorum)
        return dealt(progress, place, self.stop)

    def shard(self, use: Use) -> int:
        """The shard of a use: each epoch has an order of its own."""
        epoch, position = divmod(use, self.total)
        if epoch != self._epoch:
            self._order, self._epoch = order(self.total, self._seed, epoch), epoch
        return int(self._order[position])

    @property
    def _part(self) -> tuple[int, int]:
        link = self._rendezvous.context.link
        return self._chosen or (link.rank, link.size)

    def rows(self, opens: Opens[T], size: int) -> Iterator[Row[T]]:
        """What was dealt to the replica and is not trained, in rows of so many items for each part."""
        most = size * self._part[1]
        items: list[T] = []
        pieces: dict[Use, Piece] = {}
        for use, position in self._uses():
            for end, (item, is_last) in enumerate(opens(use, position), position + 1):
                items.append(item)
                begin = pieces[use].begin if use in pieces else end - 1
                pieces[use] = Piece(use, begin, TO_THE_END if is_last else end)
                if len(items) == most or (is_last and len(pieces) == _USES):
                    yield Row(tuple(items), tuple(pieces.values()))
                    items, pieces = [], {}
        if items:
            yield Row(tuple(items), tuple(pieces.values()))

    def _uses(self) -> list[tuple[Use, Items]]:
        ends = {use: end for use, (_, end) in self._data.open.items()}
        # What is begun comes first: its items may be at hand.
        uses = sorted(self._data.lane.uses, key=lambda place: place[0] not in ends)
        left = [(use, ends.get(use, begin)) for use, begin in uses]
        return [(use, begin) for use, begin in left if begin != TO_THE_END]

    def share(self, row: Row[T]) -> list[T]:
        """This process's items of a row. Where there are fewer than parts, some have the first one as well."""
        index, parts = self._part
        return list(row.items[index::parts] or row.items[:1])

    def served(self, source: Source[T], stop: threading.Event) -> Iterator[T]:
        """What the trainer gets from `source`, until every use has counted or the trainer should return."""
        if self._data.complete is None:
            message = (
                "The shards are read before DiLoCo is created; it must exist, for the rounds say what was trained."
            )
            raise ParametersError(message)
        deal = None
        try:
            while True:
                self._data.reached()
                if stop.is_set():
                    return
                if deal != self._data.deals:
                    source.renew()
                    deal = self._data.deals
                found = source.take()
                if found is not None and self._has_room(found[0]):
                    self._data.receive(found[0])
                    yield found[1]
                elif self.progress.low >= self.stop:
                    return
                else:
                    self._end_round()
        finally:
            self._data.forget()

    def _has_room(self, pieces: Iterable[Piece]) -> bool:
        return sum(piece.use not in self._data.trained for piece in pieces) <= self._data.room

    def _end_round(self) -> None:
        """Nothing is left of what was dealt to this replica, or the contribution cannot name more."""
        deals = self._data.deals
        if self._data.complete is not None:
            self._data.complete()
        if self._data.deals == deals:
            message = (
                "All shards of this round were read without a step: call step() of DiLoCo after each training step."
            )
            raise ParametersError(message)


class Reader(Generic[T]):
    """Reads items as the trainer asks for them."""

    def __init__(self, course: Course, opens: Opens[T], size: int) -> None:
        """`size`: items of a row, for each process."""
        self._course, self._rows = course, partial(course.rows, opens, size)
        self.renew()

    def renew(self) -> None:
        """See `Source`."""
        self._left = self._rows()

    def take(self) -> tuple[tuple[Piece, ...], list[T]] | None:
        """See `Source`."""
        row = next(self._left, None)
        return None if row is None else (row.pieces, self._course.share(row))


_END = object()


class Streams(Generic[T]):
    """The items of uses, by what `load` returns for a shard: a list, or anything that can be iterated over.

    Where training goes on with a use it goes on reading, too. Another replica's use is read from its beginning, and
    what has counted is left out.
    """

    def __init__(self, course: Course, load: Callable[[int], Iterable[T]], ahead: int = 0) -> None:
        """`ahead`: how many items are read ahead, in a thread of their own."""
        self._course, self._load, self._ahead = course, load, ahead
        self._place: tuple[Use, Items] | None = None
        self._rest: Iterator[T] = iter(())
        self._next: object = _END

    def __call__(self, use: Use, begin: Items) -> Iterator[tuple[T, bool]]:
        """See `Opens`."""
        if self._place != (use, begin):
            shard = self._course.shard(use)
            items = _from(self._load(shard), begin)
            self._rest = _read_ahead(items, self._ahead) if self._ahead else items
            self._next = next(self._rest, _END)
            if self._next is _END:
                found = f"it has no item {begin}, which the last round says is next" if begin else "it has no items"
                message = f"Shard {shard} cannot be trained: {found}. Its items must be the same whenever it is loaded."
                raise ParametersError(message)
        position = begin
        while self._next is not _END:
            # One item ahead: with its last item a use has ended.
            item, self._next = self._next, next(self._rest, _END)
            position += 1
            self._place = use, position
            yield item, self._next is _END  # type: ignore[misc]


def _from(items: Iterable[T], begin: Items) -> Iterator[T]:
    if isinstance(items, Sequence):
        return (items[at] for at in range(begin, len(items)))
    return islice(items, begin, None)


def _read_ahead(items: Iterator[T], most: int) -> Iterator[T]:
    """The same items, of which a thread reads up to `most` ahead."""
    read: queue.Queue[object] = queue.Queue(most)
    is_left = threading.Event()

    def put(one: object) -> bool:
        while not is_left.is_set():
            try:
                read.put(one, timeout=1.0)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            if all(put((item,)) for item in items):
                put(_END)
        except BaseException as error:
            put(error)

    threading.Thread(target=work, name="read-ahead", daemon=True).start()
    try:
        while (found := read.get()) is not _END:
            if isinstance(found, BaseException):
                raise found
            yield found[0]  # type: ignore[index]
    finally:
        is_left.set()
