"""The agent's HTTP server: POST /start, /stop, /update, /shutdown and GET /status."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from muster.local.hyperpod.agent.bodies import BadBodyError, Ranks, Start, Stop, read
from muster.local.hyperpod.agent.elastic_agent import Agent

_POSTS = frozenset({"/start", "/stop", "/update", "/shutdown"})
_STATUS = "/status"
_BODY_MAX = 16 * 1024 * 1024


def serve(agent: Agent, host: str, port: int) -> ThreadingHTTPServer:
    """Serve `agent` in threads of their own.

    Raises:
        OSError: another process uses the address.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == _STATUS:
                self._answer(HTTPStatus.OK, _compact(agent.status()))
            else:
                self._unknown(self.path in _POSTS)

        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _BODY_MAX))
            if self.path not in _POSTS:
                self._unknown(self.path == _STATUS)
                return
            try:
                self._answer(HTTPStatus.OK, _obey(agent, self.path, body))
            except BadBodyError as error:
                self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, _compact({"detail": error.detail}))

        def _unknown(self, known_path: bool) -> None:
            status = HTTPStatus.METHOD_NOT_ALLOWED if known_path else HTTPStatus.NOT_FOUND
            self._answer(status, _compact({"detail": "Method Not Allowed" if known_path else "Not Found"}))

        def _answer(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the operator asks for the status all the time."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="agent server", daemon=True).start()
    return server


def _obey(agent: Agent, path: str, body: bytes) -> bytes:
    """Do what a POST says; its answer's body."""
    if path == "/start":
        agent.start(read(Start, body))
    elif path == "/stop":
        agent.stop(read(Stop, body) if body else Stop())
    elif path == "/update":
        agent.update(read(Ranks, body))
        return _compact(agent.status())
    else:
        agent.shut_down()
    return b""


def _compact(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
