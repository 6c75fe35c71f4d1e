"""The little HTTP that sits between the server and the applications: a request read once, an answer sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class DisconnectedError(Exception):
    """The client went away in the middle of its request."""


class Request:
    """One HTTP request. The body is read when asked for, and can still be handed on."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._receive = receive
        self._body: bytes | None = None
        self._replayed = False

    @property
    def query(self) -> dict[str, list[str]]:
        """Query parameters, blank ones kept."""
        return parse_qs(self.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)

    @property
    def raw_path(self) -> str:
        """The path as it was sent, which is what a signature covers."""
        return bytes(self.scope["raw_path"]).decode("latin-1").split("?", 1)[0]

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            DisconnectedError: it never came to its end.
        """
        if self._body is None:
            chunks = []
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise DisconnectedError
                chunks.append(message.get("body", b""))
                if not message.get("more_body", False):
                    break
            self._body = b"".join(chunks)
        return self._body

    async def receive(self) -> Message:
        """The request once more for another application: what was read is replayed, the rest passed through."""
        if self._body is None or self._replayed:
            return await self._receive()
        self._replayed = True
        return {"type": "http.request", "body": self._body, "more_body": False}


async def discard(_message: Message) -> None:
    """A `send` for an answer that gets lost."""


async def respond(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a whole answer."""
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    encoded.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, document: object) -> None:
    """Send a JSON answer."""
    await respond(send, status, json.dumps(document).encode(), {"content-type": "application/json"})


async def break_off(send: Send) -> None:
    """Begin an answer and never end it: the server closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1024")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": False})
