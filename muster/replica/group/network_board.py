"""The board of a replica's processes: a server in the launcher of the first instance, and its clients.

One line of JSON for a request, one for its answer: {"put": key, "value": ...} or {"get": key, "seconds": ...} is
answered by {"value": ...}, or by {} when the seconds are over. Only JSON is read, and only lines up to a limit. Who may
connect is the network's business, as for torch's own store: SageMaker lets the instances of a job reach each other.
"""

from __future__ import annotations

import errno
import json
import socket
import socketserver
import threading
import time
from dataclasses import dataclass
from math import inf
from typing import TypedDict

from pydantic import JsonValue

from muster.replica.group.board import BoardError, LocalBoard

VALUE_BYTES_MAX = 64 * 1024
_LINE_BYTES_MAX = VALUE_BYTES_MAX + 1024
REACH_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_HELD_SECONDS = 5.0  # a connection that breaks after that is a new loss: a call may wait for hours
_PAUSE_SECONDS = 0.2
_LOOK_SECONDS = 0.05  # for the end of the server


class _Request(TypedDict, total=False):
    put: str
    get: str
    value: JsonValue
    seconds: float | None


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        try:
            line = self.rfile.readline(_LINE_BYTES_MAX)
            self.wfile.write(json.dumps(_answer(self.server.board, json.loads(line))).encode() + b"\n")
        except (ValueError, TypeError, KeyError, OSError):
            return  # no client of this version; it finds the connection closed


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # Every process of a replica may connect at the same time.
    request_queue_size = 1024
    board: LocalBoard


def _answer(board: LocalBoard, request: _Request) -> dict[str, JsonValue]:
    if "put" in request:
        return {"value": board.put(str(request["put"]), request["value"])}
    try:
        return {"value": board.get(str(request["get"]), request["seconds"])}
    except BoardError:
        return {}


class BoardServer:
    """Serves `board` until `close`."""

    def __init__(self, board: LocalBoard, address: tuple[str, int]) -> None:
        """Listen on `address`; port 0 chooses a free one.

        On all addresses of this machine where it has not this one: a container may be known by another one outside.

        Raises:
            OSError: the port is in use.
        """
        try:
            self._server = _Server(address, _Handler)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self._server = _Server(("", address[1]), _Handler)
        self._server.board = board
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="board", daemon=True).start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class NetworkBoard:
    """The board at an address; see `Board`. One connection to a call. Thread-safe.

    Attributes:
        patience_seconds: how long a call tries to reach the board, at first and, where it waits without a limit, after
            each loss of its connection.
    """

    host: str
    port: int
    patience_seconds: float = REACH_SECONDS

    def put(self, key: str, value: JsonValue) -> JsonValue:
        """See `Board`."""
        answer = self._call({"put": key, "value": value})
        return answer["value"]

    def get(self, key: str, seconds: float | None = None) -> JsonValue:
        """See `Board`."""
        answer = self._call({"get": key, "seconds": seconds})
        if "value" not in answer:
            message = f"No process of the replica has said {key!r} within {seconds:g} s."
            raise BoardError(message)
        return answer["value"]

    def _call(self, request: _Request) -> dict[str, JsonValue]:
        line = json.dumps(request).encode() + b"\n"
        if len(line) > _LINE_BYTES_MAX:
            message = f"A value for the board has {len(line):,} bytes; allowed: at most {VALUE_BYTES_MAX:,}."
            raise BoardError(message)
        over = time.monotonic() + self.patience_seconds
        while True:
            made = inf
            # Both calls are safe to repeat: the first value of a key stays.
            try:
                with socket.create_connection((self.host, self.port), _CONNECT_SECONDS) as connection:
                    made = time.monotonic()
                    return _asked(connection, line)
            except OSError as error:
                now = time.monotonic()
                if now - made > _HELD_SECONDS and request.get("seconds") is None:
                    over = now + self.patience_seconds
                if now > over:
                    message = f"The replica's first instance ({self.host}:{self.port}) cannot be reached: {error}."
                    raise BoardError(message) from None
            time.sleep(_PAUSE_SECONDS)


def _asked(connection: socket.socket, line: bytes) -> dict[str, JsonValue]:
    connection.settimeout(None)
    # A lost instance closes no connection: the kernel finds that it no longer answers.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.sendall(line)
    with connection.makefile("rb") as stream:
        answer = stream.readline(_LINE_BYTES_MAX)
    try:
        found: dict[str, JsonValue] = json.loads(answer)
    except ValueError:
        message = "the connection was closed without an answer"
        raise ConnectionError(message) from None
    return found
