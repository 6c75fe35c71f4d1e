"""S3 hides from a caller that may not list a bucket whether a key exists: it answers 403, where MiniStack answers 404.

S3's documentation of GetObject and HeadObject, *Permissions*: without s3:ListBucket a request for a key that does not
exist gets 403. Such a request has no prefix, so a role that may list some prefixes only is among these callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import Message, Send

from muster.local.counted_calls import Call

_READS = frozenset({"GetObject", "HeadObject"})
_BODY = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def reads_object(call: Call) -> bool:
    """Whether a call is one whose 404 may be hidden."""
    return call.service == "s3" and call.operation in _READS


class HidingSend:
    """Passes an answer on, with 403 in place of 404 where the caller `may_list` the bucket not."""

    def __init__(self, send: Send, may_list: Callable[[], Awaitable[bool]]) -> None:
        self._send = send
        self._may_list = may_list
        self._held: Message | None = None

    async def __call__(self, message: Message) -> None:
        """Take one message of the answer."""
        if message["type"] == "http.response.start" and message["status"] == 404:
            self._held = message
            return
        if self._held is None:
            await self._send(message)
            return
        start, self._held = self._held, None
        # A bucket that does not exist is no secret.
        if b"NoSuchBucket" in message.get("body", b"") or await self._may_list():
            await self._send(start)
            await self._send(message)
            return
        body = _BODY if message.get("body") else b""
        headers = [(b"content-type", b"application/xml"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 403, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
