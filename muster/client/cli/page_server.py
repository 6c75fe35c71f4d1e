"""Serves a run's page to a browser on this machine, and keeps it up to date."""

from __future__ import annotations

import secrets
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import NamedTuple

from muster.client.client_errors import PortError, os_reason
from muster.client.runs.live_page import PageSource
from muster.contract.errors import MusterError
from muster.report.page_html import page_json, render
from muster.report.page_model import Page

# However many windows are open, AWS is asked once in this time.
LOOK_SECONDS = 2.0
_HOST = "127.0.0.1"


class _Look(NamedTuple):
    page: Page
    tag: str
    at: float


# The standard library's server on purpose: with Starlette two routes take as much code, and the `client` extra of every
# user who only launches runs would grow by three packages: Starlette, anyio and a server.
class PageServer(ThreadingHTTPServer):
    """Serves the page and its data on the loopback interface alone, below a path that only who started it knows.

    Other users of the machine reach the interface, too. And it refuses other host names: a foreign site that resolves
    its own name to this address (DNS rebinding) reads nothing.
    """

    daemon_threads = True

    def __init__(self, source: PageSource, port: int = 0) -> None:
        """Port 0 is any free port.

        Raises:
            PortError: the port is taken.
        """
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise PortError(port, os_reason(error)) from error
        self._source = source
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self._lock = Lock()
        self._latest: _Look | None = None
        self.hosts = {f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}"}

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        return f"http://{_HOST}:{self.server_port}{self.path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing where a browser has closed its connection early."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def look(self) -> _Look:
        """The page as it was at most `LOOK_SECONDS` ago."""
        with self._lock:
            if self._latest is None or time.monotonic() - self._latest.at > LOOK_SECONDS:
                page = self._source.look()
                self._latest = _Look(page, self._source.tag, time.monotonic())
            return self._latest


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """The page, its data, or a refusal."""
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"another host's page\n", "text/plain")
        elif not self.path.startswith(self.server.path) or self._name not in {"", "data.json"}:
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
        else:
            try:
                look = self.server.look()
            except MusterError as error:
                self._answer(HTTPStatus.BAD_GATEWAY, f"{error}\n".encode(), "text/plain; charset=utf-8")
                return
            self._show(look)

    @property
    def _name(self) -> str:
        return self.path.removeprefix(self.server.path)

    def _show(self, look: _Look) -> None:
        tag = f'"{look.tag}"'
        if not self._name:
            self._answer(HTTPStatus.OK, render(look.page, live=True), "text/html; charset=utf-8")
        elif self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
        else:
            self._answer(HTTPStatus.OK, page_json(look.page).encode(), "application/json", tag)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Print nothing for a request."""
