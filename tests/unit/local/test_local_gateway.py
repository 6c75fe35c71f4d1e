"""The door of the embedded cloud: what reaches MiniStack, which takes some keys for root's and checks no signature."""

from collections.abc import Iterator

import pytest

from tests.support.closed_door import CALLBACK, KEY, Door, authorization, closed_door


@pytest.fixture
def door() -> Iterator[Door]:
    with closed_door() as door:
        yield door


@pytest.mark.parametrize("key", ["", "test", "123456789012", "AKIAAAAAAAAAAAAAAAAA"])
def test_nothing_unsigned_reaches_the_services(door: Door, key: str) -> None:
    ends = ("y", "/", "/../../b")
    requests = [
        *((method, f"/_ministack/health{end}") for method in ("GET", "PUT", "POST") for end in ends),
        *((method, "/_ministack/health") for method in ("PUT", "POST", "DELETE", "HEAD", "OPTIONS")),
        *((method, CALLBACK) for method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS")),
        *(("PUT", path) for path in ("/_ministack/cfn-response", "/_ministack/cfn-signalled/x", "/_ministack/reset")),
        ("POST", "/"),
    ]
    headers = [*([authorization(key)] if key else []), (b"x-amz-target", b"Logs_20140328.DescribeLogGroups")]
    for method, path in requests:
        assert (door.ask(method, path, headers), door.forwarded) == (403, []), (method, path)


@pytest.mark.parametrize(("method", "path"), [("GET", "/_ministack/health"), ("PUT", CALLBACK)])
def test_what_needs_no_signature_has_no_caller(door: Door, method: str, path: str) -> None:
    named = authorization("test"), (b"host", b"bucket.s3.localhost"), (b"x-amz-target", b"AWSLambda.Invoke")
    body = (b"content-length", b"0")
    assert door.ask(method, path, [*named, body], "X-Amz-Credential=test/a/b/c") == 200
    assert [(one["path"], one["headers"], one["query_string"]) for one in door.forwarded] == [(path, [body], b"")]


@pytest.mark.parametrize("path", ["/health", "/latest/key", "/oauth2/key"])
def test_a_bucket_that_has_the_name_of_an_internal_path_is_refused_in_words(door: Door, path: str) -> None:
    assert door.ask("PUT", path, [authorization(KEY)]) == 403
    assert f"<Code>AccessDenied</Code><Message>The embedded cloud keeps the path {path} for itself" in door.body


def test_a_second_name_of_a_caller_is_refused(door: Door) -> None:
    """MiniStack reads the headers joined, and finds the key in the second."""
    blind = (b"authorization", b"AWS4-HMAC-SHA256 nothing")
    query = f"X-Amz-Credential={KEY}%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=0"
    assert door.ask("GET", "/bucket/key", [blind, authorization("test")], query) == 403
    assert door.forwarded == []


def test_no_websocket_is_opened(door: Door) -> None:
    assert door.ask("GET", "/_aws/execute-api/api/stage", kind="websocket") == 1008
    assert door.forwarded == []
