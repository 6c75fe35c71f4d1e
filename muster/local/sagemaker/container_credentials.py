"""The endpoint from which the processes of jobs read the credentials of their role, and read new ones in time.

SageMaker has such an endpoint at the fixed address of a container's network (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI). A
process of this machine has no network of its own, so its endpoint has a full URI on the loopback interface, and a token
that only this process is given. The SDKs know both forms.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from muster.local.ministack.role_sessions import RoleCredentials

_PREFIX = "/v2/credentials/"
_SECONDS = 3600.0
_RENEWED_BEFORE = 900.0  # the SDKs ask for new ones five to fifteen minutes before the end


class NoCredentialsError(Exception):
    """There are no credentials any more."""


@dataclass
class _Offer:
    token_file: Path
    make: Callable[[float], RoleCredentials]
    expires: float = 0.0
    document: bytes = b""


class CredentialEndpoint:
    """An HTTP server on the loopback interface. Thread-safe."""

    def __init__(self) -> None:
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                document = endpoint._answer(self.path, self.headers.get("Authorization", ""))
                body = document or b"{}"
                self.send_response(200 if document else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: a path is half of a secret."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="credentials", daemon=True).start()

    def offer(self, make: Callable[[float], RoleCredentials], token_file: Path) -> dict[str, str]:
        """Offer the credentials that `make` returns for a lifetime in seconds, to who can read `token_file`.

        The offer ends with that file. Returns the environment variables with which an SDK finds the credentials.
        """
        name = secrets.token_hex(16)
        token_file.touch(mode=0o600)
        token_file.write_text(secrets.token_urlsafe(30))
        with self._lock:
            self._offers = {key: offer for key, offer in self._offers.items() if offer.token_file.exists()}
            self._offers[name] = _Offer(token_file, make)
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self._server.server_port}{_PREFIX}{name}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token_file),
        }

    def _answer(self, path: str, token: str) -> bytes | None:
        with self._lock:
            offer = self._offers.get(path.removeprefix(_PREFIX))
            if offer is None or not hmac.compare_digest(token.encode(), _content(offer.token_file)):
                return None
            now = time.time()
            if offer.expires - now < _RENEWED_BEFORE:
                try:
                    credentials = offer.make(_SECONDS)
                except NoCredentialsError:
                    return None
                offer.expires = now + _SECONDS
                offer.document = _document(credentials, offer.expires)
            return offer.document


def _content(file: Path) -> bytes:
    """What a file says; random bytes if it is gone."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return secrets.token_bytes(30)


def _document(credentials: RoleCredentials, expires: float) -> bytes:
    """What the endpoint of a container answers."""
    until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps(
        {
            "AccessKeyId": credentials.access_key_id,
            "SecretAccessKey": credentials.secret_access_key,
            "Token": credentials.session_token,
            "Expiration": until,
        }
    ).encode()
