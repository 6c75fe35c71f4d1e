"""An object that is written piece by piece while a thread sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Full, Queue
from threading import Thread

from muster.replica.store.transport import Bytes, ObjectWriter, StoreError

_LOOK_SECONDS = 0.1  # for the end of an upload that has failed


class _DiscardedError(Exception):
    """Ends an upload that is given up, which aborts it."""


class UploadWriter(ObjectWriter):
    """Collects what fits into one PUT, and hands what is longer to a thread that sends it in parts."""

    def __init__(
        self, put: Callable[[Bytes], None], put_parts: Callable[[Iterator[Bytes]], None], parts_from: int
    ) -> None:
        """Write with `put` what is shorter than `parts_from` bytes, and with `put_parts` what is longer.

        `put_parts` gives the upload up if the pieces raise an error.
        """
        self._put, self._put_parts, self._parts_from = put, put_parts, parts_from
        self._small = bytearray()
        # One piece waits while the parts before it are sent: the caller is slowed down to the upload's pace.
        self._pieces: Queue[Bytes | None] = Queue(1)
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._discarded = False

    def write(self, body: Bytes) -> None:
        """See `ObjectWriter`."""
        if self._thread is None:
            self._small += body
            if len(self._small) < self._parts_from:
                return
            body, self._small = self._small, bytearray()
            self._thread = Thread(target=self._send, name="upload", daemon=True)
            self._thread.start()
        self._give(body)

    def close(self) -> None:
        """See `ObjectWriter`."""
        if self._thread is None:
            self._put(self._small)
            return
        self._give(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def discard(self) -> None:
        """See `ObjectWriter`."""
        if self._thread is not None and self._thread.is_alive():
            self._discarded = True
            with suppress(StoreError):
                self._give(None)
            self._thread.join()

    def _give(self, body: Bytes | None) -> None:
        """Wait for room. An upload that has failed makes none."""
        while True:
            if self._thread is not None and not self._thread.is_alive() and self._error is not None:
                raise self._error
            with suppress(Full):
                self._pieces.put(body, timeout=_LOOK_SECONDS)
                return

    def _send(self) -> None:
        try:
            self._put_parts(self._taken())
        except BaseException as error:
            self._error = error

    def _taken(self) -> Iterator[Bytes]:
        while (piece := self._pieces.get()) is not None:
            yield piece
        if self._discarded:
            raise _DiscardedError
