"""Ranges of a store's objects that are read ahead: what was read is handed out once, and the rest is read then.

Objects are written once, so what was read ahead of time is what a later read would find, and its reader checks it as if
it had arrived only then. A range that failed, or that its reader asks for a second time, is read from the store itself:
there its errors are raised, and there damage in transfer is repaired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from muster.replica.store.transport import Store
from muster.replica.wire.blocks import CONNECTIONS

_THREADS = "read-ahead"
_END_SECONDS = 1.0

log = logging.getLogger("muster.replica")


@dataclass(frozen=True)
class ByteRange:
    """The bytes of the object `key` from `start` up to `stop`, which may lie behind its end."""

    key: str
    start: int
    stop: int


@dataclass(frozen=True)
class _Piece:
    """A range that is read ahead, and the room that it takes."""

    future: Future[memoryview]
    size: int


class ReadAhead:
    """Ranges of the objects in `store` that are read before they are asked for. Used from several threads.

    `stream` is for those who ask for them, the rest is for what reads ahead.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[ByteRange, _Piece] = {}
        self._asked: set[ByteRange] = set()
        self._room = self._used = 0
        self._is_closed = False

    @property
    def in_use(self) -> bool:
        """Whether a range has been asked for: the recovery has chosen what it loads."""
        return bool(self._asked)

    def allow(self, room: int) -> None:
        """From now on at most `room` bytes are held."""
        with self._changed:
            self._room = room
            self._changed.notify_all()

    def fetch(self, wanted: ByteRange) -> bool:
        """Begin to read a range, once there is room for it; False if there never will be.

        A range that has been asked for before is not read again; one that could not be read is.
        """
        size = wanted.stop - wanted.start
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or size > self._room or self._used + size <= self._room)
            if self._is_closed or size > self._room:
                return False
            if wanted not in self._asked and not self._is_read(wanted):
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(CONNECTIONS, _THREADS)
                self._used += size
                self._ahead[wanted] = _Piece(self._pool.submit(self._read, wanted), size)
        return True

    def settle(self) -> None:
        """Wait until all that is being read has arrived, or has failed."""
        with self._changed:
            running = [piece.future for piece in self._ahead.values()]
        wait(running)

    def drop(self) -> None:
        """Give up what was read ahead and has not been asked for."""
        with self._changed:
            pieces, self._ahead = list(self._ahead.values()), {}
        for piece in pieces:
            piece.future.cancel()
            piece.future.add_done_callback(partial(self._release, piece.size))

    def close(self) -> None:
        """Read nothing ahead any more, and free what is held; from now on everything comes from the store."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            pool, self._pool = self._pool, None
            self._asked.clear()
        self.drop()
        if pool is not None:
            # `drop` has cancelled what had not begun; `cancel_futures` would leave those waiting that wait for it.
            pool.shutdown(wait=False)

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        """As `Store.stream`."""
        wanted = ByteRange(key, start, stop)
        with self._changed:
            if not self._is_closed:
                self._asked.add(wanted)
            piece = self._ahead.pop(wanted, None)
        if piece is None:
            yield from self._store.stream(key, start, stop, sizes=sizes)
            return
        try:
            body = _body(piece, wanted)
            if body is None:
                yield from self._store.stream(key, start, stop, sizes=sizes)
            else:
                yield body
        finally:
            self._release(piece.size)

    def _is_read(self, wanted: ByteRange) -> bool:
        """Whether a range has arrived, or may do so."""
        piece = self._ahead.get(wanted)
        if piece is None or not piece.future.done() or piece.future.exception() is None:
            return piece is not None
        del self._ahead[wanted]
        self._used -= piece.size
        return False

    def _read(self, wanted: ByteRange) -> memoryview:
        return self._store.read(wanted.key, wanted.start, wanted.stop).body

    def _release(self, size: int, _: object = None) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()


def _body(piece: _Piece, wanted: ByteRange) -> memoryview | None:
    """The bytes, once they have arrived; None if they have not."""
    try:
        return piece.future.result()
    except CancelledError:
        return None
    except Exception as error:
        # The reader asks the store itself, which raises what is true then.
        log.info("event=not-read-ahead key=%s reason=%r", wanted.key, str(error))
        return None


def is_reading() -> bool:
    """Whether requests are still running a little later, whose answers the interpreter would wait for."""
    over = time.monotonic() + _END_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(_THREADS):
            thread.join(max(0.0, over - time.monotonic()))
            if thread.is_alive():
                return True
    return False
