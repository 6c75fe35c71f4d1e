"""The door of the embedded cloud: what reaches MiniStack, which takes some keys for root's and checks no signature."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.local.ministack import callers
from muster.local.service import gateway
from muster.local.service.gateway import Gateway

CALLBACK = "/_ministack/cfn-response/token"
KEY = "ASIAAAAAAAAAAAAAAAAA"


def authorization(key: str) -> tuple[bytes, bytes]:
    scope = f"AWS4-HMAC-SHA256 Credential={key}/20260101/us-east-1/s3/aws4_request"
    return b"authorization", f"{scope}, SignedHeaders=host, Signature=0".encode()


@pytest.fixture
def forwarded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What reached MiniStack."""
    found: list[dict[str, Any]] = []

    async def ministack(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        found.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAROOTROOTROOTROOT")
    monkeypatch.setattr(gateway, "ministack_application", ministack)
    monkeypatch.setattr(callers, "caller_of", lambda key: ("anonymous" if key != KEY else "role", ""))
    return found


def ask(method: str, path: str, *headers: tuple[bytes, bytes], query: str = "", kind: str = "http") -> int:
    """The status of the answer; of a WebSocket, the code with which it is closed."""
    admin = SimpleNamespace(owns=lambda _path: False)
    door = Gateway(cast("Any", None), cast("Any", None), cast("Any", admin), cast("Any", None))
    scope = {"type": kind, "method": method, "path": path, "raw_path": path.encode(), "headers": list(headers)}
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    full = {**scope, "query_string": query.encode(), "scheme": "https", "client": ("127.0.0.1", 1)}
    asyncio.run(door(full, receive, cast("Any", send)))
    return int(answers[0].get("status") or answers[0].get("code"))


@pytest.mark.parametrize("key", ["", "test", "123456789012", "AKIAAAAAAAAAAAAAAAAA"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((method, f"/_ministack/health{end}") for method in ("GET", "PUT", "POST") for end in ("y", "/", "/../../b")),
        *((method, "/_ministack/health") for method in ("PUT", "POST", "DELETE", "HEAD", "OPTIONS")),
        *((method, CALLBACK) for method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS")),
        *(("PUT", path) for path in ("/_ministack/cfn-response", "/_ministack/cfn-signalled/x", "/_ministack/reset")),
        ("POST", "/"),
    ],
)
def test_nothing_unsigned_reaches_the_services(
    forwarded: list[dict[str, Any]], key: str, method: str, path: str
) -> None:
    headers = [authorization(key)] if key else []
    assert ask(method, path, *headers, (b"x-amz-target", b"Logs_20140328.DescribeLogGroups")) == 403
    assert forwarded == []


@pytest.mark.parametrize(("method", "path"), [("GET", "/_ministack/health"), ("PUT", CALLBACK)])
def test_what_needs_no_signature_has_no_caller(forwarded: list[dict[str, Any]], method: str, path: str) -> None:
    named = authorization("test"), (b"host", b"bucket.s3.localhost"), (b"x-amz-target", b"AWSLambda.Invoke")
    body = (b"content-length", b"0")
    assert ask(method, path, *named, body, query="X-Amz-Credential=test/a/b/c") == 200
    assert [(one["path"], one["headers"], one["query_string"]) for one in forwarded] == [(path, [body], b"")]


def test_a_second_name_of_a_caller_is_refused(forwarded: list[dict[str, Any]]) -> None:
    """MiniStack reads the headers joined, and finds the key in the second."""
    blind = (b"authorization", b"AWS4-HMAC-SHA256 nothing")
    query = f"X-Amz-Credential={KEY}%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0"
    assert ask("GET", "/bucket/key", blind, authorization("test"), query=query) == 403
    assert forwarded == []


def test_no_websocket_is_opened(forwarded: list[dict[str, Any]]) -> None:
    assert ask("GET", "/_aws/execute-api/api/stage", kind="websocket") == 1008
    assert forwarded == []
