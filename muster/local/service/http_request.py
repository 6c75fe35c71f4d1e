"""A request at the endpoint: read by the service first, then passed on to MiniStack if it is for MiniStack."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send


class EndpointRequest(Request):
    """One HTTP request. Its body is read when asked for, and can still be passed on."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.path: str = scope["path"]
        self.access_key: str | None = None  # once it has been looked for (muster.local.ministack.callers)
        self._was_read = False
        self._replayed = False

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            ClientDisconnect: the client went away before its end.
        """
        self._was_read = True
        return await super().body()

    @property
    def query(self) -> dict[str, list[str]]:
        """Query parameters, blank ones kept: a signature covers every value."""
        return parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    @property
    def raw_path(self) -> str:
        """The path as it was sent, which is what a signature covers."""
        return bytes(self.scope["raw_path"]).decode("latin-1").split("?", 1)[0]

    async def replay(self) -> Message:
        """The request for another application: a body that was read comes again, one that was not is passed through."""
        if not self._was_read or self._replayed:
            return await self.receive()
        self._replayed = True
        return {"type": "http.request", "body": await self.body(), "more_body": False}


async def discard(_message: Message) -> None:
    """A `send` for an answer that is lost."""


async def break_off(send: Send) -> None:
    """Begin an answer and never finish it: the server closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1024")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": False})
