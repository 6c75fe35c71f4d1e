"""Large requests to S3, against a server that sends what a script says, byte by byte."""

from __future__ import annotations

import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials

from muster.local.kubernetes.authority import create_certificates
from muster.replica.store import s3_store
from muster.replica.store.bulk import connections
from muster.replica.store.bulk.credentials import Credentials, CredentialSource
from muster.replica.store.bulk.signature import Target, signed_headers
from muster.replica.store.bulk.transfers import Transfers
from muster.replica.store.s3_store import TRIES, S3ObjectStore
from muster.replica.store.transport import (
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.raw_s3 import Raw, RawScript, answer, chunked, raw_s3
from tests.support.waiting import wait_until

BODY = bytes(range(256)) * 4
SLOW_DOWN = b"<Error><Code>SlowDown</Code></Error>"


def part(start: int = 0, stop: int = len(BODY), *, ends: bool = False, sent: int | None = None) -> Raw:
    """A range of BODY, of which so many bytes are `sent`."""
    found = answer(206, BODY[start:stop], ends=ends, Content_Range=f"bytes {start}-{stop - 1}/{len(BODY)}")
    return found if sent is None else Raw(found.data[: len(found.data) - (stop - start) + sent], ends=True)


@pytest.fixture(autouse=True)
def everything_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "BULK_BYTES", 1)
    monkeypatch.setattr(s3_store, "BACKOFF_FIRST_SECONDS", 0.001)
    for name in (*s3_store.CA_VARIABLES, "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def opened(script: RawScript, monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{script.port}")
    return S3ObjectStore("bucket", "prefix/")


def read(store: S3ObjectStore, start: int = 0, stop: int = len(BODY)) -> bytes:
    return b"".join(bytes(piece) for piece in store.stream("key", start, stop, sizes=(100, 300)))


def made_by_obstore(script: RawScript) -> list[bool]:
    return ["user-agent" in headers for _, headers, _ in script.requests]


def test_a_body_comes_in_the_pieces_that_are_wanted_always_in_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(part()) as script:
        store = opened(script, monkeypatch)
        pieces = [(len(piece), piece.obj) for piece in store.stream("key", 0, len(BODY), sizes=(100, 300))]
        assert [size for size, _ in pieces] == [100, 300, 300, 300, 24]
        assert len({id(memory) for _, memory in pieces}) == 1
        assert read(store) == BODY
    assert script.connections == 1
    assert [headers["range"] for _, headers, _ in script.requests] == [f"bytes=0-{len(BODY) - 1}"] * 2
    assert script.lines == ["GET /bucket/prefix/key"] * 2
    assert not any(made_by_obstore(script))


TROUBLE = [
    pytest.param(answer(503, SLOW_DOWN), id="503"),
    pytest.param(chunked(503, SLOW_DOWN[:9], SLOW_DOWN[9:]), id="503 in chunks"),
    pytest.param(answer(400, SLOW_DOWN), id="SlowDown by its code"),
    pytest.param(answer(400, b"<Error><Code>RequestTimeout</Code></Error>"), id="RequestTimeout"),
    pytest.param(answer(500), id="500"),
    pytest.param(answer(429), id="429"),
    pytest.param(Raw(b"", ends=True), id="reset"),
    pytest.param(Raw(b"HTTP/1.1 206 Par", ends=True), id="half a head"),
    pytest.param(Raw(b"220 mail server ready\r\n\r\n", ends=True), id="not HTTP"),
    pytest.param(answer(206, BODY, Content_Length="-5"), id="a length below zero"),
    pytest.param(answer(206, BODY, Content_Length="9" * 5_000), id="a length without end"),
    pytest.param(part(0, 100), id="fewer bytes than there are"),
    pytest.param(answer(206, BODY[5:], Content_Range=f"bytes 5-{len(BODY) - 1}/{len(BODY)}"), id="another range"),
    pytest.param(
        answer(206, BODY[:-9], ends=True, Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}"), id="another length"
    ),
]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_that_passes_is_survived(trouble: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    there = answer(200, **{"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, Content_Length=str(len(BODY)), ETag='"1"')
    # After an error a HEAD says whether the object ends before the range.
    with raw_s3(trouble, there, trouble, there, part()) as script:
        assert read(opened(script, monkeypatch)) == BODY
    assert [line.partition(" ")[0] for line in script.lines] == ["GET", "HEAD", "GET", "HEAD", "GET"]


def test_trouble_that_does_not_pass_ends_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(503, SLOW_DOWN)) as script, pytest.raises(StoreUnavailableError, match=f"in {TRIES} tries"):
        opened(script, monkeypatch).create("key", BODY)
    assert len(script.requests) == TRIES


def test_a_body_that_breaks_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(part(sent=150), part(150, sent=1), part(151)) as script:
        assert read(opened(script, monkeypatch)) == BODY
    assert [headers["range"] for _, headers, _ in script.requests] == [
        f"bytes={start}-{len(BODY) - 1}" for start in (0, 150, 151)
    ]


def test_a_body_that_always_breaks_ends_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(*(part(start, sent=1) for start in range(TRIES))) as script, pytest.raises(StoreUnavailableError):
        read(opened(script, monkeypatch))
    assert len(script.requests) == TRIES


def test_a_connection_that_was_closed_meanwhile_is_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = part()
    with raw_s3(Raw(whole.data, ends=True), whole) as script:
        store = opened(script, monkeypatch)
        assert read(store) == read(store) == BODY
    assert (script.connections, len(script.requests)) == (2, 2)
    # While the request is on its way.
    with raw_s3(whole, Raw(b"", ends=True), whole) as script:
        store = opened(script, monkeypatch)
        assert read(store) == read(store) == BODY
    assert script.lines == ["GET /bucket/prefix/key"] * 3


def test_an_answer_that_closes_its_connection_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    closing = answer(206, BODY, Connection="close", Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}")
    with raw_s3(closing) as script:
        store = opened(script, monkeypatch)
        assert read(store) == read(store) == BODY
    assert script.connections == 2


def test_a_connection_with_more_than_the_answer_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(Raw(part().data + b"HTTP/1.1 200 OK\r\n\r\n"), part()) as script:
        store = opened(script, monkeypatch)
        assert read(store) == read(store) == BODY
    assert script.connections == 2


def test_over_tls_a_connection_with_more_than_the_answer_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much was decrypted with the answer: the socket itself has no more to read."""
    found = create_certificates(tmp_path, "127.0.0.1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(found.server, found.key)
    # A head that is longer than what is read at once: the surplus comes after it.
    whole = answer(206, BODY, X_Pad="x" * 3_000, Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}")
    with raw_s3(Raw(whole.data + answer(200).data), whole, tls=serving) as script:
        bulk = Transfers(f"https://127.0.0.1:{script.port}", "bucket", "us-east-1", os.environ, str(found.authority))
        for _ in range(2):
            assert b"".join(bytes(piece) for piece in bulk.get("key", 0, len(BODY)).pieces(len(BODY))) == BODY
    assert script.connections == 2


def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.05)
    silent = Raw(b"HTTP/1.1 206 Answer\r\n")
    with raw_s3(silent, answer(404), part()) as script, pytest.raises(ObjectMissingError):
        read(opened(script, monkeypatch))
    assert [line.partition(" ")[0] for line in script.lines] == ["GET", "HEAD"]


def test_interim_answers_without_end_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    interim = Raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)
    with raw_s3(interim, answer(404), part()) as script, pytest.raises(ObjectMissingError):
        read(opened(script, monkeypatch))
    assert [line.partition(" ")[0] for line in script.lines] == ["GET", "HEAD"]


def test_large_objects_lie_below_the_path_of_the_service_as_small_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(200, ETag='"1"')) as script:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{script.port}/storage/v1/s3")
        store = S3ObjectStore("bucket", "prefix/")
        store.create("key", BODY)
        monkeypatch.setattr(s3_store, "BULK_BYTES", len(BODY) + 1)
        store.create("key", BODY)
    assert script.lines == ["PUT /storage/v1/s3/bucket/prefix/key"] * 2
    assert made_by_obstore(script) == [False, True]


def test_what_is_missing_is_one_request_on_a_connection_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(chunked(404, b"<Error><Code>NoSuchKey</Code>", b"</Error>"), part()) as script:
        store = opened(script, monkeypatch)
        with pytest.raises(ObjectMissingError):
            read(store)
        assert read(store) == BODY
    assert (script.connections, len(script.requests)) == (1, 2)


def test_a_denial_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(403, b"<Error><Code>AccessDenied</Code></Error>")) as script, pytest.raises(StoreDeniedError):
        opened(script, monkeypatch).create("key", BODY)
    assert len(script.requests) == 1


@pytest.mark.parametrize("status", [412, 409])
@pytest.mark.parametrize("hasty", [False, True])
def test_a_lost_race_is_no_trouble(status: int, hasty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 may refuse a body before it has come."""
    refusal = Raw(answer(status).data, hasty=hasty)
    there = answer(200, **{"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, ETag='"1"')
    with raw_s3(refusal, there) as script, pytest.raises(ObjectExistsError):
        opened(script, monkeypatch).create("key", bytes(2**22))
    assert script.requests[0][1]["if-none-match"] == "*"
    assert [line.partition(" ")[0] for line in script.lines] == ["PUT", "HEAD"]


def test_a_large_body_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    body = memoryview(bytes(range(256)) * 2**12)
    with raw_s3(answer(200)) as script:
        opened(script, monkeypatch).create("key", body[100:])
    assert script.requests[0][2] == bytes(body[100:])


@pytest.mark.parametrize(
    "unusual",
    [
        pytest.param(answer(301, b"<Error><Code>PermanentRedirect</Code></Error>"), id="another region"),
        pytest.param(answer(400, b"<Error><Code>ExpiredToken</Code></Error>"), id="expired"),
        pytest.param(answer(403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), id="clock"),
        pytest.param(answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"), id="signature"),
        pytest.param(answer(400, b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>"), id="region"),
        pytest.param(chunked(206, BODY), id="a body in chunks"),
        pytest.param(answer(200, BODY), id="no range"),
        pytest.param(answer(206, BODY, Content_Range=f"bytes 0-{'9' * 5_000}/{len(BODY)}"), id="a range without end"),
    ],
)
def test_what_is_unusual_is_left_to_the_other_client(unusual: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(
        206,
        BODY,
        Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}",
        **{"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"},
        ETag='"1"',
    )
    with raw_s3(unusual, found) as script:
        store = opened(script, monkeypatch)
        assert read(store) == BODY
        assert read(store) == BODY
    # For a while it makes all requests.
    assert made_by_obstore(script) == [False, True, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [("http_proxy", "http://127.0.0.1:9"), ("AWS_ACCESS_KEY_ID", ""), ("AWS_CA_BUNDLE", "/nowhere.pem")],
)
def test_where_it_cannot_be_done_here_nothing_is_tried(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(part()) as script:
        store = opened(script, monkeypatch)
        monkeypatch.setenv(
            "AWS_ENDPOINT_URL", "https://127.0.0.1:9" if name == "AWS_CA_BUNDLE" else f"http://127.0.0.1:{script.port}"
        )
        monkeypatch.setenv(name, value)
        monkeypatch.setenv("no_proxy", "")
        assert store._transfers(2**20) is None


# --- uploads in parts ----------------------------------------------------------------------------------------------

MIB = 2**20
BEGUN = answer(200, b"<R><UploadId>7&amp;8</UploadId></R>")
STORED = answer(200, ETag='"e"')
COMPLETE = answer(200, b"<CompleteMultipartUploadResult/>")
LARGE = bytes(16 * MIB + 5)


def uploads(script: RawScript) -> list[str]:
    return sorted({line.partition(" ")[0] + (" part" if "partNumber" in line else "") for line in script.lines})


def test_what_is_large_is_sent_in_parts_that_are_listed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(BEGUN, STORED, STORED, STORED, STORED, COMPLETE) as script:
        opened(script, monkeypatch).upload("key", LARGE)
    assert script.lines[0] == "POST /bucket/prefix/key?uploads="
    assert sorted(script.lines[1:5]) == [
        f"PUT /bucket/prefix/key?partNumber={number}&uploadId=7%268" for number in (1, 2, 3, 4)
    ]
    assert sorted(len(body) for _, _, body in script.requests[1:5]) == [MIB + 5, 5 * MIB, 5 * MIB, 5 * MIB]
    assert script.lines[5] == "POST /bucket/prefix/key?uploadId=7%268"
    listed = script.requests[5][2].decode()
    assert [listed.index(f'<PartNumber>{number}</PartNumber><ETag>"e"</ETag>') for number in (1, 2, 3, 4)] == sorted(
        listed.index(f"<PartNumber>{number}<") for number in (1, 2, 3, 4)
    )


def test_an_upload_that_is_expected_is_created_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(BEGUN, *[STORED] * 4, COMPLETE) as script:
        store = opened(script, monkeypatch)
        store.expect_upload("key", len(LARGE))
        wait_until("the upload", lambda: len(script.requests) == 1)
        store.upload("key", LARGE)
    assert (script.lines[0], len(script.requests)) == ("POST /bucket/prefix/key?uploads=", 6)


def test_an_upload_that_could_not_be_created_before_is_created_with_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(503), BEGUN, *[STORED] * 4, COMPLETE) as script:
        store = opened(script, monkeypatch)
        store.expect_upload("key", len(LARGE))
        store.upload("key", LARGE)
    assert script.lines[1] == "POST /bucket/prefix/key?uploads="


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("body", [None, b"a header alone"])
def test_an_upload_that_does_not_follow_is_deleted(
    at_once: bool, body: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that was committed meanwhile, or values that cannot be averaged."""
    with raw_s3(BEGUN) as script:  # whichever request comes first
        store = opened(script, monkeypatch)
        store.expect_upload("key", len(LARGE))
        if not at_once:
            wait_until("the upload", lambda: len(script.requests) == 1)
        if body is None:
            store.forget_upload("key")
        else:
            store.upload("key", body)
        wait_until("the end of the upload", lambda: any(line.startswith("DELETE") for line in script.lines))
    assert "DELETE /bucket/prefix/key?uploadId=7%268" in script.lines


def test_a_part_that_fails_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(BEGUN, answer(503), Raw(b"", ends=True), *[STORED] * 4, COMPLETE) as script:
        opened(script, monkeypatch).upload("key", LARGE)
    assert len(script.requests) == 8


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param(answer(200, b"<Error><Code>InternalError</Code></Error>"), id="after a 200"),
        pytest.param(answer(200, b"<Error><Code>\xff</Code></Error>"), id="no UTF-8"),
        # It says nothing of the object: the request is not conditional.
        pytest.param(answer(409, b"<Error><Code>OperationAborted</Code></Error>"), id="conflict"),
    ],
)
def test_an_upload_that_fails_at_its_end_is_completed_again(failed: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(BEGUN, *[STORED] * 4, failed, COMPLETE) as script:
        opened(script, monkeypatch).upload("key", LARGE)
    assert script.lines[5] == script.lines[6]


def test_an_expected_upload_is_deleted_where_the_other_client_makes_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    redirected = answer(301, b"<Error><Code>PermanentRedirect</Code></Error>")
    begun = b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>9</UploadId>"
    complete = b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'
    by_obstore = [answer(200, begun + b"</InitiateMultipartUploadResult>"), *[STORED] * 4, answer(200, complete)]
    with raw_s3(BEGUN, redirected, STORED, answer(204), *by_obstore) as script:
        store = opened(script, monkeypatch)
        store.expect_upload("key", len(LARGE))
        wait_until("the upload", lambda: len(script.requests) == 1)
        store.create("other", BODY)  # from now on the other client makes all requests
        store.upload("key", LARGE)
    assert script.lines[3] == "DELETE /bucket/prefix/key?uploadId=7%268"


def test_an_upload_that_was_begun_long_before_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 dates the object from its beginning, and a round takes that for the time when it came."""
    monkeypatch.setattr(s3_store, "BEGUN_SECONDS_MAX", 0.0)
    other = answer(200, b"<InitiateMultipartUploadResult><UploadId>9</UploadId></InitiateMultipartUploadResult>")
    with raw_s3(BEGUN, answer(204), other, *[STORED] * 4, COMPLETE) as script:
        store = opened(script, monkeypatch)
        store.expect_upload("key", len(LARGE))
        store.upload("key", LARGE)
    assert script.lines[1] == "DELETE /bucket/prefix/key?uploadId=7%268"
    assert script.lines[-1] == "POST /bucket/prefix/key?uploadId=9"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_upload_that_is_gone_is_complete_if_its_object_is_there(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
    look = answer(200 if is_there else 404, **{"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, ETag='"1"')
    with raw_s3(BEGUN, *[STORED] * 4, Raw(b"", ends=True), gone, look) as script:
        store = opened(script, monkeypatch)
        if is_there:
            store.upload("key", LARGE)
        else:
            with pytest.raises(StoreUnavailableError, match="deleted"):
                store.upload("key", LARGE)
    assert script.lines[-1] == "HEAD /bucket/prefix/key"


def test_the_parts_of_an_upload_that_is_denied_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = answer(403, b"<Error><Code>AccessDenied</Code></Error>")
    with raw_s3(BEGUN, denied) as script, pytest.raises(StoreDeniedError):
        opened(script, monkeypatch).upload("key", LARGE)
    assert script.lines[-1] == "DELETE /bucket/prefix/key?uploadId=7%268"


# --- objects that are sent while they are made ---------------------------------------------------------------------

PIECES = [bytes([number]) * MIB for number in range(3)]


def created(script: RawScript, monkeypatch: pytest.MonkeyPatch) -> bool:
    creation = opened(script, monkeypatch).creation("key", 3 * MIB)
    assert creation is not None
    for piece in PIECES:
        creation.send(piece)
    return creation.finish()


def test_an_object_is_sent_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(200)) as script:
        assert created(script, monkeypatch)
    [(line, headers, body)] = script.requests
    assert (line, headers["if-none-match"]) == ("PUT /bucket/prefix/key HTTP/1.1", "*")
    assert body == b"".join(PIECES)


@pytest.mark.parametrize(
    "trouble",
    [answer(503, SLOW_DOWN), Raw(b"", ends=True), Raw(b"", hasty=True), answer(301), answer(403)],
    ids=["503", "reset", "closed at once", "redirect", "403"],
)
def test_an_object_that_could_not_be_sent_while_it_was_made_is_created_afterwards(
    trouble: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw_s3(trouble) as script:
        assert not created(script, monkeypatch)


@pytest.mark.parametrize(("status", "is_there"), [(412, True), (409, True), (409, False)])
def test_an_object_that_another_has_made_meanwhile_counts(
    status: int, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = answer(200 if is_there else 404, **{"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, ETag='"1"')
    with raw_s3(answer(status), look) as script:
        if is_there:
            with pytest.raises(ObjectExistsError):
                created(script, monkeypatch)
        else:
            assert not created(script, monkeypatch)


def test_an_object_that_is_given_up_while_it_is_made_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_s3(answer(200)) as script:
        creation = opened(script, monkeypatch).creation("key", 3 * MIB)
        assert creation is not None
        creation.send(PIECES[0])
        creation.discard()
        wait_until("the end of the connection", lambda: script.ended == 1)
    assert all(len(body) < 3 * MIB for _, _, body in script.requests)


# --- signatures and credentials ------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "session/token="])
@pytest.mark.parametrize("query", [{}, {"uploads": ""}, {"uploadId": "a+b/c=", "partNumber": "12"}])
def test_a_signature_is_that_of_botocore(
    token: str | None, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    target = Target("PUT", "/bucket/runs/a b_c.d-e~/00001", query)
    ours = signed_headers(target, "s3.eu-west-1.amazonaws.com", "eu-west-1", Credentials("AKIA", "secret", token), now)
    url = f"https://s3.eu-west-1.amazonaws.com{target.quoted_path}"
    request = AWSRequest("PUT", f"{url}?{target.quoted_query}" if query else url)
    request.context.update(client_config=Config(s3={"payload_signing_enabled": False}), timestamp="20260102T030405Z")
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now.replace(tzinfo=None))
    S3SigV4Auth(BotoCredentials("AKIA", "secret", token), "s3", "eu-west-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]
    assert ours["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def issued(name: str, lifetime: timedelta) -> Raw:
    expires = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": expires}
    return answer(200, json.dumps(body).encode())


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answer(500), id="error"),
        pytest.param(answer(200, b"{}", ends=True, Content_Length="500"), id="cut off"),
        pytest.param(Raw(b"garbage\r\n\r\n", ends=True), id="not HTTP"),
    ],
)
def test_a_containers_credentials_are_renewed_before_they_expire(
    bad: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.replica.store.bulk.credentials._AGAIN_SECONDS", 0.0)
    first = issued("first", timedelta(minutes=4))
    with raw_s3(first, bad, issued("second", timedelta(hours=6))) as agent:
        token = tmp_path / "token"
        token.write_text("bearer\n")
        source = CredentialSource(
            {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{agent.port}/role",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
            }
        )
        # The first ones expire soon; while there are no others, they are used.
        assert [source.current().key for _ in range(4)] == ["first", "first", "second", "second"]
        source.refuse(source.current())
        assert source.current().key == "second"
    assert agent.lines == ["GET /role"] * 4
    assert all(headers["authorization"] == "bearer" for _, headers, _ in agent.requests)


def test_credentials_that_cannot_be_had_leave_requests_to_the_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    token = tmp_path / "token"
    token.write_text("bearer")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    with raw_s3(answer(500)) as agent, raw_s3(answer(200, ETag='"1"')) as script:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{agent.port}/role")
        store = opened(script, monkeypatch)
        with pytest.raises(StoreUnavailableError):
            store.create("key", BODY)
    assert not script.requests


@pytest.mark.parametrize(
    ("variables", "is_known"),
    [
        ({}, False),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, True),
        ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x"}, True),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}, False),
        (
            {
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "/t",
                "AWS_ROLE_ARN": "arn",
            },
            False,
        ),
    ],
)
def test_only_credentials_whose_source_is_known_are_used(variables: dict[str, str], is_known: bool) -> None:
    assert CredentialSource(variables).is_known == is_known
