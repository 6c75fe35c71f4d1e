"""What the processes of an instance write, line by line, with the process in front: `[2.5] loss=0.7`."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 18  # CloudWatch Logs quota: size of a log event


class PrefixedLines:
    """The lines of one process. What does not end in a line feed waits for it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """The complete lines after `data`, with their prefix. A longer line than a log event is cut in pieces."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def end(self) -> bytes:
        """The last line, if it does not end in a line feed."""
        return self.take(b"\n") if self._rest else b""


class ProcessOutput:
    """Copies the FIFOs of an instance's processes to one stream, until `close`."""

    def __init__(self, fifos: Sequence[Path], prefixes: Sequence[str], to: BinaryIO) -> None:
        self._to = to
        self._selector = selectors.DefaultSelector()
        self._lines: dict[int, PrefixedLines] = {}
        for path, prefix in zip(fifos, prefixes, strict=True):
            # Opened for writing, too: a FIFO without a writer is at its end.
            fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            self._lines[fifo] = PrefixedLines(prefix)
            self._selector.register(fifo, selectors.EVENT_READ)
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy what is left, and end. The processes have ended."""
        os.write(self._wake_write, b".")
        self._thread.join()
        for fifo, lines in self._lines.items():
            while self._pass_on(fifo):
                pass
            self._write(lines.end())
            os.close(fifo)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()

    def _copy(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._wake_read:
                    return
                self._pass_on(key.fd)

    def _pass_on(self, fifo: int) -> bool:
        try:
            data = os.read(fifo, _READ_BYTES)
        except BlockingIOError:
            return False
        self._write(self._lines[fifo].take(data))
        return True

    def _write(self, data: bytes) -> None:
        if data:
            # It may have no reader any more; the processes must not wait for one.
            with suppress(BrokenPipeError):
                self._to.write(data)
                self._to.flush()
