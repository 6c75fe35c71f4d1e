"""Large requests to S3, against a server that sends what a script says, byte by byte."""

import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials

from muster.local.certificate_authority import create_certificates
from muster.replica.store import s3_store
from muster.replica.store.bulk import connections
from muster.replica.store.bulk.credentials import Credentials, CredentialSource
from muster.replica.store.bulk.signature import RequestTarget, signed_headers
from muster.replica.store.bulk.transfers import Transfers
from muster.replica.store.s3_store import TRIES, S3ObjectStore
from muster.replica.store.transport import (
    Creation,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.s3_server import RESET, Raw, S3Server, answer, chunked, error, s3_server
from tests.support.waiting import wait_until

BODY = bytes(range(256)) * 4
SPAN = f"bytes 0-{len(BODY) - 1}/{len(BODY)}"
SLOW_DOWN = b"<Error><Code>SlowDown</Code></Error>"
THERE = answer(200, Content_Length=str(len(BODY)))  # to HEAD


def part(start: int = 0, stop: int = len(BODY), *, sent: int | None = None, **headers: str) -> Raw:
    """A range of BODY, of which so many bytes are `sent`."""
    found = answer(206, BODY[start:stop], Content_Range=f"bytes {start}-{stop - 1}/{len(BODY)}", **headers)
    return found if sent is None else Raw(found.data[: len(found.data) - (stop - start) + sent], ends=True)


@pytest.fixture(autouse=True)
def everything_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "BULK_BYTES", 1)


def opened() -> S3ObjectStore:
    return S3ObjectStore("bucket", "prefix/")


def read(store: S3ObjectStore) -> bytes:
    return b"".join(bytes(piece) for piece in store.stream("key", 0, len(BODY), sizes=(100, 300)))


def made_by_obstore(s3: S3Server) -> list[bool]:
    return ["user-agent" in request.headers for request in s3.requests]


def ranges(s3: S3Server) -> list[str]:
    return [request.headers["range"] for request in s3.requests]


def test_a_body_comes_in_the_pieces_that_are_wanted_always_in_the_same_memory(s3: S3Server) -> None:
    s3.script(chunked(404, b"<Error><Code>NoSuchKey</Code>", b"</Error>"), part())
    store = opened()
    with pytest.raises(ObjectMissingError):
        read(store)
    pieces = [(len(piece), piece.obj) for piece in store.stream("key", 0, len(BODY), sizes=(100, 300))]
    assert [size for size, _ in pieces] == [100, 300, 300, 300, 24]
    assert len({id(memory) for _, memory in pieces}) == 1
    assert read(store) == BODY
    # Over one connection, also after the error.
    assert (s3.connections, s3.lines) == (1, ["GET /bucket/prefix/key"] * 3)
    assert set(ranges(s3)) == {f"bytes=0-{len(BODY) - 1}"}
    assert not any(made_by_obstore(s3))


TROUBLE = {
    "503": answer(503, SLOW_DOWN),
    "503 in chunks": chunked(503, SLOW_DOWN[:9], SLOW_DOWN[9:]),
    "SlowDown by its code": answer(400, SLOW_DOWN),
    "RequestTimeout": error(400, "RequestTimeout"),
    "500": answer(500),
    "429": answer(429),
    "reset": RESET,
    "half a head": Raw(b"HTTP/1.1 206 Par", ends=True),
    "not HTTP": Raw(b"220 mail server ready\r\n\r\n", ends=True),
    "a length below zero": answer(206, BODY, Content_Length="-5"),
    "two lengths": Raw(part().data.replace(b"Content-Length", b"Content-Length: 7\r\ncontent-length", 1)),
    "a length without end": answer(206, BODY, Content_Length="9" * 5_000),
    "fewer bytes than there are": part(0, 100),
    "another range": part(5),
    "another length": answer(206, BODY[:-9], ends=True, Content_Range=SPAN),
}


def test_trouble_that_passes_is_survived(s3: S3Server, subtests: pytest.Subtests) -> None:
    for name, trouble in TROUBLE.items():
        with subtests.test(name):
            s3.script(trouble, trouble, part())
            assert read(opened()) == BODY
            assert s3.methods == ["GET"] * 3
            assert not any(made_by_obstore(s3))


def test_trouble_that_does_not_pass_ends_after_a_bounded_number_of_tries(s3: S3Server) -> None:
    s3.script(answer(503, SLOW_DOWN))
    with pytest.raises(StoreUnavailableError, match=f"in {TRIES} tries"):
        opened().create("key", BODY)
    assert len(s3.requests) == TRIES
    s3.script(*(part(start, sent=1) for start in range(TRIES)))
    with pytest.raises(StoreUnavailableError):
        read(opened())
    assert len(s3.requests) == TRIES
    s3.script(error(403, "AccessDenied"))
    with pytest.raises(StoreDeniedError):
        opened().create("key", BODY)
    assert len(s3.requests) == 1


def test_a_body_that_breaks_continues_where_it_was(s3: S3Server) -> None:
    s3.script(part(sent=150), part(150, sent=1), part(151))
    assert read(opened()) == BODY
    assert ranges(s3) == [f"bytes={start}-{len(BODY) - 1}" for start in (0, 150, 151)]


def test_a_connection_that_was_closed_meanwhile_is_made_again_at_once(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "TRIES", 1)
    s3.script(Raw(part().data, ends=True), part())
    store = opened()
    assert read(store) == read(store) == BODY
    assert (s3.connections, len(s3.requests)) == (2, 2)
    # While the request is on its way.
    s3.script(part(), RESET, part())
    store = opened()
    assert read(store) == read(store) == BODY
    assert s3.lines == ["GET /bucket/prefix/key"] * 3


def test_over_tls_a_connection_with_more_than_the_answer_is_not_used_again(tmp_path: Path) -> None:
    """What is too much was decrypted with the answer: the socket itself has no more to read."""
    found = create_certificates(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found.server, found.key)
    # A head that is longer than what is read at once: the surplus comes after it.
    whole = part(X_Pad="x" * 3_000)
    with s3_server(tls=context) as s3:
        s3.script(Raw(whole.data + answer(200).data), whole)
        bulk = Transfers(f"https://127.0.0.1:{s3.port}", "bucket", "us-east-1", s3.environment, str(found.authority))
        for _ in range(2):
            assert b"".join(bytes(piece) for piece in bulk.get("key", 0, len(BODY)).pieces(len(BODY))) == BODY
        assert s3.connections == 2


def test_a_server_that_is_silent_is_given_up(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.05)
    for silent in (Raw(b"HTTP/1.1 206 Answer\r\n"), Raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)):
        s3.script(silent, answer(404), part())
        with pytest.raises(ObjectMissingError):
            read(opened())
        assert s3.methods == ["GET", "GET"]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"
CHUNKED = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n"
DRIPPED = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", lambda answer: answer),
    "body": (HEAD, lambda answer: list(answer.pieces(9_000))),
    "error": (b"HTTP/1.1 404 No\r\n\r\n", lambda answer: answer.text()),
    "chunks": (CHUNKED, lambda answer: answer.text()),
}


@pytest.mark.parametrize("part_of_answer", DRIPPED)
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    monkeypatch: pytest.MonkeyPatch, part_of_answer: str
) -> None:
    """Each byte comes before the server counts as silent."""
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.15)
    monkeypatch.setattr(connections, "SLOWEST_BYTES", 1e9)
    begin, read_answer = DRIPPED[part_of_answer]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.recv(4_096)
                peer.sendall(begin)
                for _ in range(60):
                    time.sleep(0.05)
                    peer.sendall(b"1\r\nx\r\n" if part_of_answer == "chunks" else b"x")

        thread = threading.Thread(target=serve)
        thread.start()
        began = time.monotonic()
        with suppress(connections.BrokenError, OSError):
            read_answer(connections.Connections(f"http://127.0.0.1:{listener.getsockname()[1]}", None).ask(b"GET"))
        assert time.monotonic() - began < 2
        thread.join()


def test_a_server_that_takes_a_few_bytes_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 0.15)
    monkeypatch.setattr(connections, "SLOWEST_BYTES", 1e9)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                for _ in range(60):
                    time.sleep(0.05)
                    peer.recv(65_536)

        thread = threading.Thread(target=serve)
        thread.start()
        began = time.monotonic()
        client = connections.Connections(f"http://127.0.0.1:{listener.getsockname()[1]}", None)
        with pytest.raises((connections.BrokenError, OSError)):
            client.ask(b"PUT", bytes(100_000_000))
        assert time.monotonic() - began < 2
        thread.join()


def test_large_objects_lie_below_the_path_of_the_service(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.script(answer(200))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}/storage/v1/s3")
    store = opened()
    for least in (1, len(BODY) + 1):
        monkeypatch.setattr(s3_store, "BULK_BYTES", least)
        store.create("key", memoryview(BODY)[100:])
    assert s3.lines == ["PUT /storage/v1/s3/bucket/prefix/key"] * 2
    assert [request.body for request in s3.requests] == [BODY[100:]] * 2
    assert made_by_obstore(s3) == [False, True]


def test_a_lost_race_is_no_trouble(s3: S3Server) -> None:
    """S3 may refuse a body before it has come."""
    for status, hasty in product((412, 409), (False, True)):
        s3.script(Raw(answer(status).data, hasty=hasty), THERE)
        with pytest.raises(ObjectExistsError):
            opened().create("key", bytes(2**25))
        assert s3.requests[0].headers["if-none-match"] == "*"
        assert s3.methods == ["PUT", "HEAD"]


UNUSUAL = {
    "another region": error(301, "PermanentRedirect"),
    "expired": error(400, "ExpiredToken"),
    "clock": error(403, "RequestTimeTooSkewed"),
    "signature": error(403, "SignatureDoesNotMatch"),
    "region": error(400, "AuthorizationHeaderMalformed"),
    "a body in chunks": chunked(206, BODY),
    "no range": answer(200, BODY),
    "a range without end": answer(206, BODY, Content_Range=f"bytes 0-{'9' * 5_000}/{len(BODY)}"),
}


def test_what_is_unusual_is_left_to_the_other_client(s3: S3Server, subtests: pytest.Subtests) -> None:
    for name, unusual in UNUSUAL.items():
        with subtests.test(name):
            s3.script(unusual, part())
            store = opened()
            assert read(store) == read(store) == BODY
            # For a while it makes all requests.
            assert made_by_obstore(s3) == [False, True, True]


def test_where_it_cannot_be_done_here_nothing_is_tried(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, str]] = [
        {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""},
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_CA_BUNDLE": "/nowhere.pem", "AWS_ENDPOINT_URL": "https://127.0.0.1:9"},
    ]
    for variables in rows:
        store = opened()
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert store._transfers(2**20) is None, variables


# --- uploads in parts ----------------------------------------------------------------------------------------------

MIB = 2**20
BEGUN = answer(200, b"<R><UploadId>7&amp;8</UploadId></R>")
STORED = answer(200, ETag='"e"')
COMPLETE = answer(200, b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>')
LARGE = bytes(16 * MIB + 5)  # four parts
PARTS = [STORED] * 4
CREATED = "POST /bucket/prefix/key?uploads="
DELETED = "DELETE /bucket/prefix/key?uploadId=7%268"


def test_what_is_large_is_sent_in_parts_that_are_listed_in_order(s3: S3Server) -> None:
    # Parts that fail are sent again.
    s3.script(BEGUN, answer(503), RESET, *PARTS, COMPLETE)
    opened().upload("key", LARGE)
    assert (s3.lines[0], s3.lines[-1]) == (CREATED, "POST /bucket/prefix/key?uploadId=7%268")
    assert len(s3.requests) == 8
    sizes = {request.line: len(request.body) for request in s3.requests[1:-1]}
    parts = {f"PUT /bucket/prefix/key?partNumber={number}&uploadId=7%268": 5 * MIB for number in (1, 2, 3)}
    assert sizes == {**parts, "PUT /bucket/prefix/key?partNumber=4&uploadId=7%268": MIB + 5}
    listed = s3.requests[-1].body.decode()
    places = [listed.index(f'<PartNumber>{number}</PartNumber><ETag>"e"</ETag>') for number in (1, 2, 3, 4)]
    assert places == sorted(places)


def test_an_upload_that_fails_at_its_end_is_completed_again(s3: S3Server, subtests: pytest.Subtests) -> None:
    failures = {
        "after a 200": error(200, "InternalError"),
        "no UTF-8": answer(200, b"<Error><Code>\xff</Code></Error>"),
        # It says nothing of the object: the request is not conditional.
        "conflict": error(409, "OperationAborted"),
    }
    for name, failed in failures.items():
        with subtests.test(name):
            s3.script(BEGUN, *PARTS, failed, COMPLETE)
            opened().upload("key", LARGE)
            assert s3.lines[5] == s3.lines[6]


def test_an_upload_that_is_gone_is_complete_if_its_object_is_there(s3: S3Server) -> None:
    gone = error(404, "NoSuchUpload")
    s3.script(BEGUN, *PARTS, RESET, gone, THERE)
    opened().upload("key", LARGE)
    assert s3.lines[-1] == "HEAD /bucket/prefix/key"
    s3.script(BEGUN, *PARTS, RESET, gone, answer(404))
    with pytest.raises(StoreUnavailableError, match="deleted"):
        opened().upload("key", LARGE)


def test_the_parts_of_an_upload_that_is_denied_are_deleted(s3: S3Server) -> None:
    s3.script(BEGUN, error(403, "AccessDenied"))
    with pytest.raises(StoreDeniedError):
        opened().upload("key", LARGE)
    assert s3.lines[-1] == DELETED


# --- objects that are sent while they are made ---------------------------------------------------------------------

PIECES = [bytes([number]) * MIB for number in range(3)]


def creation() -> Creation:
    """An object that is sent while it is made."""
    found = opened().creation("key", 3 * MIB)
    assert found is not None
    return found


def created() -> bool:
    made = creation()
    for piece in PIECES:
        made.send(piece)
    return made.finish()


def test_an_object_that_could_not_be_sent_while_it_was_made_is_created_afterwards(s3: S3Server) -> None:
    s3.script(answer(200))
    assert created()
    [request] = s3.requests
    assert (request.line, request.headers["if-none-match"]) == ("PUT /bucket/prefix/key", "*")
    assert request.body == b"".join(PIECES)
    closed = Raw(b"", hasty=True)
    for trouble in (answer(412), answer(409), answer(503, SLOW_DOWN), RESET, closed, answer(301), answer(403)):
        s3.script(trouble)
        assert not created(), trouble


def test_an_object_that_is_given_up_while_it_is_made_is_not_created(s3: S3Server) -> None:
    s3.script(answer(200))
    made = creation()
    made.send(PIECES[0])
    made.discard()
    wait_until("the end of the connection", lambda: s3.ended == 1)
    assert all(len(request.body) < 3 * MIB for request in s3.requests)


# --- signatures and credentials ------------------------------------------------------------------------------------


def test_a_signature_is_that_of_botocore(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now.replace(tzinfo=None))
    host, region = "s3.eu-west-1.amazonaws.com", "eu-west-1"
    queries: list[dict[str, str]] = [{}, {"uploads": ""}, {"uploadId": "a+b/c=", "partNumber": "12"}]
    for token, query in product((None, "session/token="), queries):
        with subtests.test(token=token, query=query):
            target = RequestTarget("PUT", "/bucket/runs/a b_c.d-e~/00001", query)
            ours = signed_headers(target, host, region, Credentials("AKIA", "secret", token), now)
            url = f"https://{host}{target.quoted_path}"
            request = AWSRequest("PUT", f"{url}?{target.quoted_query}" if query else url)
            config = Config(s3={"payload_signing_enabled": False})
            request.context.update(client_config=config, timestamp="20260102T030405Z")
            S3SigV4Auth(BotoCredentials("AKIA", "secret", token), "s3", region).add_auth(request)
            assert ours["authorization"] == request.headers["Authorization"]
            assert ours["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    with subtests.test("another service"):
        headers, body = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "AmazonSSM.GetParameter"}, b"{}"
        target = RequestTarget("POST", "/", service="ssm", headers=headers, body=body)
        ours = signed_headers(target, "ssm", region, Credentials("AKIA", "secret", "token"), now)
        request = AWSRequest("POST", "https://ssm/", headers, body)
        request.headers["X-Amz-Content-SHA256"] = ours["x-amz-content-sha256"]
        request.context["timestamp"] = "20260102T030405Z"
        SigV4Auth(BotoCredentials("AKIA", "secret", "token"), "ssm", region).add_auth(request)
        assert ours["authorization"] == request.headers["Authorization"]


def issued(name: str, lifetime: timedelta) -> Raw:
    expires = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": expires}
    return answer(200, json.dumps(body).encode())


def test_a_containers_credentials_are_renewed_before_they_expire(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr("muster.replica.store.bulk.credentials._AGAIN_SECONDS", 0.0)
    (tmp_path / "token").write_text("bearer\n")
    bad_answers = {
        "error": answer(500),
        "cut off": answer(200, b"{}", ends=True, Content_Length="500"),
        "not HTTP": Raw(b"garbage\r\n\r\n", ends=True),
        "elsewhere": answer(302, Location="/elsewhere"),
        "too long": answer(200, issued("long", timedelta(hours=6)).data.partition(b"\r\n\r\n")[2] + b" " * 70_000),
    }
    for name, bad in bad_answers.items():
        with subtests.test(name):
            s3.script(issued("first", timedelta(minutes=4)), bad, issued("second", timedelta(hours=6)))
            variables = {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{s3.port}/role",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            }
            source = CredentialSource(variables)
            # The first ones expire soon; while there are no others, they are used.
            assert [source.current().key for _ in range(4)] == ["first", "first", "second", "second"]
            source.refuse(source.current())
            assert source.current().key == "second"
            assert s3.lines == ["GET /role"] * 4
            assert all(request.headers["authorization"] == "bearer" for request in s3.requests)


def test_credentials_that_cannot_be_had_leave_requests_to_the_other_client(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("bearer")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    with s3_server() as agent:
        agent.script(answer(500))
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{agent.port}/role")
        with pytest.raises(StoreUnavailableError):
            opened().create("key", BODY)
    assert not s3.requests


def test_only_credentials_whose_source_is_known_are_used() -> None:
    container, assumed = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x"}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/t"}
    known = [{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, container]
    unknown = [{}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}, {**container, **assumed, "AWS_ROLE_ARN": "arn"}]
    assert [CredentialSource(variables).is_known for variables in known + unknown] == [True] * 2 + [False] * 3
