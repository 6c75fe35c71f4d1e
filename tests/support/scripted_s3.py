"""A loopback HTTP server with scripted answers: the errors of S3 that no emulator has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.serving import serving

ALWAYS = {"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}


@dataclass
class Answer:
    """One response. `drop` closes the connection in place of the body's last bytes, or of everything."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


@dataclass
class Script:
    """The answers in order (the last one is repeated), and the requests that were received."""

    answers: list[Answer]
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class LoopbackServer(ThreadingHTTPServer):
    """Serves many replicas at once."""

    request_queue_size = 128  # a client whose connection finds the queue full retries only a second later


@contextmanager
def scripted(*answers: Answer) -> Iterator[Script]:
    """Serve `answers` on a free loopback port."""
    script = Script(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            script.requests.append((self.command, self.path, dict(self.headers)))
            answer = script.next()
            if answer.drop and not answer.body:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {
                "ETag": '"1"',
                "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
                **answer.headers,
            }.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: len(answer.body) // 2] if answer.drop else answer.body)
            self.close_connection = answer.drop

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            return

    with serving(LoopbackServer(("127.0.0.1", 0), Handler)) as server:
        script.port = server.server_port
        yield script
