"""Kept HTTP/1.1 connections to one server. Bodies go from and to memory that is there already."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from urllib.parse import urlsplit

from muster.replica.store.transport import Bytes

CONNECT_SECONDS = 5.0
# A server that sends or takes nothing for so long is gone.
SILENCE_SECONDS = 30.0
# And one that sends or takes so few bytes a second, beyond that time, holds a round up for as long as it likes.
SLOWEST_BYTES = 16_384
# S3 closes idle connections after some seconds: those that are older are not used again.
IDLE_SECONDS = 4.0
KEPT = 32
_HEAD_BYTES = 2048  # read at once: what it holds of a body is copied
_HEAD_BYTES_MAX = 65_536
_LINE_BYTES_MAX = 4096
_LENGTH_DIGITS_MAX = 19
_INTERIM_MAX = 20  # answers with 1xx before the answer
_SENT_BYTES = 2**18  # over TLS: in the cache while it is encrypted
_NO_BODY = (204, 304)


class BrokenError(Exception):
    """The connection ended, or what came over it was no answer."""


class Connections:
    """The connections to one server. Instances may be used from several threads."""

    def __init__(self, url: str, authority: str | None) -> None:
        """`authority`: a file with the certificates of a private authority, trusted besides the system's."""
        parts = urlsplit(url)
        self._host, self._is_tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self.host = parts.netloc.rpartition("@")[2]
        self.path = parts.path.rstrip("/")
        """What the paths of requests begin with."""
        self._tls: ssl.SSLContext | None = None
        if self._is_tls:
            self._tls = ssl.create_default_context()
            if authority is not None:
                self._tls.load_verify_locations(authority)
        self._lock = Lock()
        self._idle: list[_Connection] = []

    def ask(self, head: bytes, body: Bytes = b"") -> ResponseHead:
        """Send one request, and read the head of its answer.

        A kept connection may have been closed meanwhile: then a new one is tried at once.

        Raises:
            BrokenError: the connection broke, or the answer is none of HTTP.
            OSError: no connection.
        """
        while (kept := self._kept()) is not None:
            try:
                return self._asked(kept, head, body)
            except (BrokenError, OSError):
                if kept.has_answered:
                    raise
        return self._asked(self._opened(), head, body)

    def begin(self, head: bytes) -> Sending:
        """Begin a request whose body follows piece by piece."""
        sending = Sending(self, self._kept() or self._opened())
        sending.send(head)
        return sending

    def _asked(self, connection: _Connection, head: bytes, body: Bytes) -> ResponseHead:
        connection.has_answered = False
        try:
            refused: OSError | None = None
            try:
                connection.send(head, body)
            except OSError as error:
                refused = error  # an answer may be there that says why
            return _answer(connection, self, refused)
        except BaseException:
            connection.close()
            raise

    def _kept(self) -> _Connection | None:
        """The one that was used last, if it is still open."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()

    def keep(self, connection: _Connection) -> None:
        """The connection is free for the next request."""
        connection.idle_since = time.monotonic()
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _opened(self) -> _Connection:
        plain = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return _Connection(plain)
            return _TlsConnection(self._tls.wrap_socket(plain, server_hostname=self._host))
        except BaseException:
            plain.close()
            raise


def _deadline(size: int) -> float:
    """When `size` bytes must be through."""
    return time.monotonic() + SILENCE_SECONDS + size / SLOWEST_BYTES


class _Connection:
    """One connection, and the memory into which it receives."""

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain
        self._room = memoryview(bytearray(_SENT_BYTES))
        self.idle_since = 0.0
        self.has_answered = False
        self.rest = b""
        self._prepare()

    def _prepare(self) -> None:
        # Not `settimeout`: with it a socket does not wait for all bytes by itself.
        self._socket.settimeout(None)
        limit = struct.pack("ll", int(SILENCE_SECONDS), int(SILENCE_SECONDS % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    @property
    def is_usable(self) -> bool:
        """Whether the server has not closed it, and has sent nothing that was not asked for."""
        if time.monotonic() > self.idle_since + IDLE_SECONDS:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def room(self, size: int) -> memoryview:
        """`size` bytes of memory, always the same."""
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        return self._room[:size]

    def send(self, head: bytes, body: Bytes) -> None:
        view = memoryview(body).cast("B")
        deadline = _deadline(len(head) + len(view))
        sent = self._socket.sendmsg([head, view])
        for part in (memoryview(head)[sent:], view[max(0, sent - len(head)) :]):
            self._send(part, deadline)

    def _send(self, view: memoryview, deadline: float) -> None:
        while view:
            view = view[self._socket.send(view[:_SENT_BYTES]) :]
            if view and time.monotonic() > deadline:
                message = f"the server takes less than {SLOWEST_BYTES:,} bytes a second"
                raise TimeoutError(message)

    def receive(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        return self._socket.recv(size)

    def fill(self, room: memoryview) -> int:
        """Receive until `room` is full, or the connection ends; the number of bytes."""
        filled, deadline = 0, _deadline(len(room))
        while filled < len(room) and time.monotonic() < deadline:
            received = self._receive_into(room[filled:])
            if not received:
                break
            filled += received
        return filled

    def _receive_into(self, room: memoryview) -> int:
        return self._socket.recv_into(room, 0, socket.MSG_WAITALL)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


class _TlsConnection(_Connection):
    """Records are decrypted into the memory."""

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        super().__init__(tls)

    def _prepare(self) -> None:
        self._socket.settimeout(SILENCE_SECONDS)

    def send(self, head: bytes, body: Bytes) -> None:
        view = memoryview(body).cast("B")
        deadline = _deadline(len(head) + len(view))
        for part in (memoryview(head), view):
            self._send(part, deadline)

    @property
    def is_usable(self) -> bool:
        """As for one without TLS; what was decrypted already is not seen there."""
        return not self._tls.pending() and super().is_usable

    def _receive_into(self, room: memoryview) -> int:
        return self._socket.recv_into(room)


class Sending:
    """A request that is being sent. For one thread."""

    def __init__(self, connections: Connections, connection: _Connection) -> None:
        self._connections, self._connection = connections, connection
        self._refused: OSError | None = None

    def send(self, piece: Bytes) -> None:
        """The next bytes. What goes wrong is known by the answer."""
        if self._refused is None:
            try:
                self._connection.send(b"", piece)
            except OSError as error:
                self._refused = error

    def answer(self) -> ResponseHead:
        """The head of the answer, after all has been sent; raises as `ask`."""
        try:
            return _answer(self._connection, self._connections, self._refused)
        except BaseException:
            self._connection.close()
            raise

    def discard(self) -> None:
        """Close the connection: a server takes no body of which bytes are missing."""
        self._connection.close()


@dataclass
class ResponseHead:
    """The head of an answer; its body is read by one of the methods, or the connection is closed.

    Attributes:
        length: of the body; None where it comes in chunks or ends with the connection.
    """

    status: int
    headers: dict[str, str]
    length: int | None
    _connection: _Connection
    _connections: Connections
    _is_done: bool = False
    _deadline: float = 0.0

    def pieces(self, size: int, first: int = 0) -> Iterator[memoryview]:
        """The body in pieces of `size` bytes, of which the first one has `first` if given, and the last one the rest.

        Each is valid until the next one. What came before a connection broke is a piece, too.

        Raises:
            BrokenError: the body ended early.
        """
        left, connection, wanted = self.length or 0, self._connection, first or size
        try:
            while left:
                room = connection.room(min(wanted, left))
                try:
                    filled = self._fill(room)
                except OSError as error:
                    raise BrokenError(str(error)) from None
                left -= filled
                if filled:
                    yield room[:filled]
                if filled < len(room):
                    message = f"the connection ended {left:,} bytes before the body"
                    raise BrokenError(message)
                wanted = size
        finally:
            self._done(whole=not left)

    def text(self) -> bytes:
        """The body of a short answer: at most _HEAD_BYTES_MAX bytes of it; nothing if it breaks."""
        whole, found = False, b""
        self._deadline = _deadline(_HEAD_BYTES_MAX)
        with suppress(OSError, BrokenError, ValueError):
            if self.length is not None:
                found = self._filled(bytearray(min(self.length, _HEAD_BYTES_MAX)))
                whole = len(found) == self.length
            elif self.headers.get("transfer-encoding", "").lower() == "chunked":
                found, whole = self._chunks(), True
            else:
                while len(found) < _HEAD_BYTES_MAX and (more := self._some()):
                    found += more
        self._done(whole=whole)
        return found

    def close(self) -> None:
        """Nothing of the body is wanted."""
        self._done(whole=self.length == 0)

    def _filled(self, body: bytearray) -> bytes:
        with memoryview(body) as view:
            filled = self._fill(view)
        return bytes(body[:filled])

    def _fill(self, room: memoryview) -> int:
        """Fill `room` with what came with the head, and then from the connection."""
        connection = self._connection
        held = connection.rest[: len(room)]
        room[: len(held)] = held
        connection.rest = connection.rest[len(held) :]
        return len(held) + connection.fill(room[len(held) :])

    def _some(self) -> bytes:
        self._check_time()
        rest, self._connection.rest = self._connection.rest, b""
        return rest or self._connection.receive(_HEAD_BYTES)

    def _chunks(self) -> bytes:
        """A body in chunks, as S3 sends its errors."""
        found = b""
        while size := int(self._line().partition(b";")[0], 16):
            if len(found) + size > _HEAD_BYTES_MAX:
                raise BrokenError
            chunk = self._filled(bytearray(size))
            if len(chunk) < size or self._line():
                raise BrokenError
            found += chunk
        trailers = 0
        while line := self._line():
            trailers += len(line)
            if trailers > _HEAD_BYTES_MAX:
                raise BrokenError
        return found

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise BrokenError

    def _line(self) -> bytes:
        connection = self._connection
        self._check_time()
        while b"\r\n" not in connection.rest:
            self._check_time()
            more = connection.receive(_HEAD_BYTES) if len(connection.rest) < _LINE_BYTES_MAX else b""
            if not more:
                raise BrokenError
            connection.rest += more
        line, _, connection.rest = connection.rest.partition(b"\r\n")
        return line

    def _done(self, *, whole: bool) -> None:
        if self._is_done:
            return
        self._is_done = True
        is_kept = self.headers.get("connection", "").lower() != "close"
        if whole and is_kept and not self._connection.rest:
            self._connections.keep(self._connection)
        else:
            self._connection.close()


def _answer(connection: _Connection, connections: Connections, refused: OSError | None) -> ResponseHead:
    """The head of the answer. `refused`: why not all of the request could be sent.

    Raises:
        BrokenError
        OSError
    """
    data, deadline = b"", time.monotonic() + 2 * SILENCE_SECONDS
    for _ in range(_INTERIM_MAX):
        while b"\r\n\r\n" not in data:
            try:
                more = connection.receive(_HEAD_BYTES)
            except OSError as error:
                message = f"no answer: {refused or error}"
                raise BrokenError(message) from None
            if not more or len(data) > _HEAD_BYTES_MAX or time.monotonic() > deadline:
                message = f"no answer: {refused or 'the connection ended'}"
                raise BrokenError(message)
            connection.has_answered = True
            data += more
        head, _, connection.rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            message = f"not an answer of HTTP: {first[:80]!r}"
            raise BrokenError(message)
        status = int(rest[:3])
        if status >= 200:
            break
        data = connection.rest  # 100 Continue: the answer follows
    else:
        message = "no answer follows 100 Continue"
        raise BrokenError(message)
    named = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    headers = dict(named)
    if sum(name == "content-length" for name, _ in named) > 1:
        message = "an answer with two lengths"
        raise BrokenError(message)
    if refused is not None or version == "HTTP/1.0":
        headers["connection"] = "close"
    length = headers.get("content-length")
    if length is not None and not (length.isdecimal() and len(length) <= _LENGTH_DIGITS_MAX):
        message = f"a body of {length[:80]!r} bytes"
        raise BrokenError(message)
    known = 0 if status in _NO_BODY else None if length is None or "transfer-encoding" in headers else int(length)
    return ResponseHead(status, headers, known, connection, connections)
