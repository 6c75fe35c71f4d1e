"""A loopback server that sends exactly the bytes of a script: answers that no HTTP library would send."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Raw:
    """The bytes of an answer. `ends`: it closes the connection. `hasty`: it does not wait for the request's body."""

    data: bytes
    ends: bool = False
    hasty: bool = False


@dataclass
class RawScript:
    """The answers in order (the last one is repeated), what was requested, and how many connections there were."""

    answers: list[Raw]
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0
    ended: int = 0
    port: int = 0

    @property
    def lines(self) -> list[str]:
        """Method and target of each request."""
        return [line.removesuffix(" HTTP/1.1") for line, _, _ in self.requests]

    def next(self) -> Raw:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def answer(status: int, body: bytes = b"", *, ends: bool = False, **headers: str) -> Raw:
    """An ordinary answer, with the length of its body unless a header says another one."""
    found = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in found.items() if value)
    return Raw(f"HTTP/1.1 {status} Answer\r\n{lines}\r\n".encode() + body, ends)


def chunked(status: int, *chunks: bytes) -> Raw:
    """An answer in chunks, as S3 sends its errors."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return Raw(f"HTTP/1.1 {status} Answer\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)


@contextmanager
def raw_s3(*answers: Raw, tls: ssl.SSLContext | None = None) -> Iterator[RawScript]:
    """Serve `answers` on a free loopback port, over `tls` if given."""
    script, lock, open_ones = RawScript(list(answers)), threading.Lock(), []

    @contextmanager
    def ending() -> Iterator[None]:
        yield
        script.ended += 1

    def serve(connection: socket.socket) -> None:
        with connection, ending(), suppress(OSError):
            file = connection.makefile("rb")
            while line := file.readline():
                headers: dict[str, str] = {}
                while (header := file.readline().decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                with lock:
                    reply = script.next()
                    body = b"" if reply.hasty else file.read(int(headers.get("content-length", "0")))
                    script.requests.append((line.decode().strip(), headers, body))
                connection.sendall(reply.data)
                if reply.ends or reply.hasty:
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                script.connections += 1
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                open_ones.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        script.port = listener.getsockname()[1]
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield script
        finally:
            for connection in open_ones:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            listener.shutdown(socket.SHUT_RDWR)
