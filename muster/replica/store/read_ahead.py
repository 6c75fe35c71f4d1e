"""A store whose objects can be read ahead: what was read is handed out once, and everything else passes through.

Objects are written once, so what was read ahead of time is what a later read would find, and its reader checks it as if
it had arrived only then. A range that failed, or that its reader asks for a second time, is read from the store itself:
there its errors are raised, and there damage in transfer is repaired.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from muster.replica.store.transport import Bytes, Creation, ObjectRange, ObjectWriter, Store
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


class _Passing(Store):
    """Passes every call on."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, key: str, body: Bytes) -> None:
        """See `Store`."""
        self._store.create(key, body)

    def creation(self, key: str, size: int) -> Creation | None:
        """See `Store`."""
        return self._store.creation(key, size)

    def upload(self, key: str, body: Bytes) -> None:
        """See `Store`."""
        self._store.upload(key, body)

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        """See `Store`."""
        return self._store.writer(key, size)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """See `Store`."""
        return self._store.read(key, start, stop)

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        """See `Store`."""
        return self._store.stream(key, start, stop, sizes=sizes)

    def exists(self, key: str) -> bool:
        """See `Store`."""
        return self._store.exists(key)

    def keys(self, folder: str, stop: str) -> list[str]:
        """See `Store`."""
        return self._store.keys(folder, stop)

    def delete(self, keys: Sequence[str]) -> None:
        """See `Store`."""
        self._store.delete(keys)

    def uri(self, key: str) -> str:
        """See `Store`."""
        return self._store.uri(key)


class ReadAhead(_Passing):
    """`store`, of which some ranges are read before they are asked for. Used from several threads.

    `fetch`, `drop`, `forget` and `close` are for what reads ahead, the rest is for all others.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._changed = threading.Condition()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[ByteRange, _Piece] = {}
        self._asked: set[ByteRange] = set()
        self._small: dict[str, ObjectRange] = {}
        self._there: set[str] = set()
        self._room = self._used = 0
        self._is_closed = False
        # What is there at once is a matter of the cores: more threads than those would only wait for each other.
        self._cores = os.cpu_count() or 1
        self._handed_out = 0

    @property
    def in_use(self) -> bool:
        """Whether a range has been asked for: the recovery has chosen what it loads."""
        return bool(self._asked)

    def scout(self) -> Store:
        """The same store for what reads ahead: what it finds out is not asked again.

        Only for objects that are never deleted.
        """
        return _Scout(self._store, self)

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

    def forget(self) -> None:
        """As `drop`, and whatever the scout has found out."""
        self.drop()
        with self._changed:
            self._small.clear()
            self._there.clear()

    def close(self) -> None:
        """Read nothing ahead any more, and free what is held; from now on every call passes through."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            pool, self._pool = self._pool, None
            self._asked.clear()
        self.forget()
        if pool is not None:
            # `forget` has cancelled what had not begun; `cancel_futures` would leave those waiting that wait for it.
            pool.shutdown(wait=False)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """See `Store`."""
        found = self._small.get(key) if start == 0 and stop is None else None
        return self._store.read(key, start, stop) if found is None else found

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        """See `Store`."""
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
                with self._core():
                    yield body
        finally:
            self._release(piece.size)

    @contextmanager
    def _core(self) -> Iterator[None]:
        """As many at once as there are cores, until nothing is read ahead any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._handed_out < self._cores)
            self._handed_out += 1
        try:
            yield
        finally:
            with self._changed:
                self._handed_out -= 1
                self._changed.notify_all()

    def exists(self, key: str) -> bool:
        """See `Store`."""
        return key in self._there or self._store.exists(key)

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

    def _keep(self, key: str, part: ObjectRange | None) -> None:
        """The object exists; `part` is the whole of it."""
        with self._changed:
            if self._is_closed:
                return
            self._there.add(key)
            if part is not None:
                self._small[key] = part


class _Scout(_Passing):
    """What is read ahead is found through this."""

    def __init__(self, store: Store, ahead: ReadAhead) -> None:
        super().__init__(store)
        self._for = ahead

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """See `Store`."""
        part = self._store.read(key, start, stop)
        if start == 0 and stop is None:
            self._for._keep(key, part)
        return part

    def exists(self, key: str) -> bool:
        """See `Store`."""
        found = self._store.exists(key)
        if found:
            self._for._keep(key, None)
        return found


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
