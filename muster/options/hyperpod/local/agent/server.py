"""The agent's HTTP server: POST /start, /stop, /shutdown and GET /status, as far as the operator asks."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from muster.options.hyperpod.local.agent.elastic_agent import Agent

_BODY_MAX = 16 * 1024 * 1024


def serve(agent: Agent, host: str, port: int) -> ThreadingHTTPServer:
    """Serve `agent` in threads of their own.

    Raises:
        OSError: another process uses the address.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/status":
                self._answer(HTTPStatus.OK, json.dumps(agent.status()).encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND)

        def do_POST(self) -> None:
            obey = {"/start": agent.start, "/stop": agent.stop, "/shutdown": agent.shut_down}.get(self.path)
            body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _BODY_MAX))
            if obey is None:
                self._answer(HTTPStatus.NOT_FOUND)
                return
            try:
                obey(json.loads(body or b"{}"))
            except (ValueError, KeyError, TypeError):
                self._answer(HTTPStatus.UNPROCESSABLE_ENTITY)
            else:
                self._answer(HTTPStatus.OK)

        def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
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
