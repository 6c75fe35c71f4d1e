"""The door of the embedded cloud without a cloud behind it: what reaches MiniStack, and what is answered before."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from muster.local.ministack import callers
from muster.local.service import gateway
from muster.local.service.gateway import Gateway

KEY = "ASIAAAAAAAAAAAAAAAAA"
"""The key of a role's session; any other one is nobody's."""
ROOT_KEY = "AKIAROOTROOTROOTROOT"
CALLBACK = "/_ministack/cfn-response/token"
Header = tuple[bytes, bytes]


def authorization(key: str) -> Header:
    """A signature that somebody without the secret makes up."""
    scope = f"AWS4-HMAC-SHA256 Credential={key}/20260101/us-east-1/s3/aws4_request"
    return b"authorization", f"{scope}, SignedHeaders=host, Signature=0".encode()


class Door:
    """Serves requests; `forwarded` are those that reached MiniStack, `body` is that of the last answer."""

    def __init__(self) -> None:
        self.body = ""
        self.forwarded: list[dict[str, Any]] = []
        admin = SimpleNamespace(owns=lambda _path: False)
        self._gateway = Gateway(cast("Any", None), cast("Any", None), cast("Any", admin), cast("Any", None))

    async def ministack(self, scope: dict[str, Any], _receive: Any, send: Any) -> None:
        self.forwarded.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self, method: str, path: str, headers: Sequence[Header] = (), query: str = "", kind: str = "http") -> int:
        """The status of the answer; of a WebSocket, the code with which it is closed."""
        answers: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        scope = {"type": kind, "method": method, "path": path, "raw_path": path.encode(), "headers": list(headers)}
        more = {"query_string": query.encode(), "scheme": "https", "client": ("127.0.0.1", 1)}
        asyncio.run(self._gateway({**scope, **more}, receive, cast("Any", send)))
        self.body = b"".join(message.get("body", b"") for message in answers).decode()
        return int(answers[0].get("status") or answers[0].get("code"))


@contextmanager
def closed_door() -> Iterator[Door]:
    """A door, in a process that has started no cloud."""
    door = Door()

    def caller_of(key: str) -> tuple[str, str]:
        return ("role" if key == KEY else "anonymous", "")

    with (
        patch.dict("os.environ", {"AWS_ACCESS_KEY_ID": ROOT_KEY, "AWS_SECRET_ACCESS_KEY": "secret"}),
        patch.object(gateway, "ministack_application", door.ministack),
        patch.object(callers, "caller_of", caller_of),
    ):
        yield door
