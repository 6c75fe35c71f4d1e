"""The S3 store against a server that answers as a script says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muster.replica.store import missing_objects as s3_missing
from muster.replica.store import s3_store
from muster.replica.store.s3_store import TRIES, S3ObjectStore
from muster.replica.store.transport import (
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.scripted_s3 import Answer, Script, scripted
from tests.support.waiting import wait_until

OK = Answer(body=b"hello", headers={"Content-Range": "bytes 0-4/5"})
SLOW_DOWN = Answer(503, b"<Error><Code>SlowDown</Code></Error>")


def scripted_store(script: Script, monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    for name in (*s3_store.CA_VARIABLES, "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{script.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(s3_store, "BACKOFF_FIRST_SECONDS", 0.001)
    return S3ObjectStore("bucket", "prefix/")


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(SLOW_DOWN, id="503"),
        pytest.param(Answer(500), id="500"),
        pytest.param(Answer(429), id="429"),
        pytest.param(Answer(drop=True), id="reset"),
        pytest.param(Answer(body=b"hello", drop=True), id="truncated"),
    ],
)
def test_trouble_that_passes_is_survived(trouble: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(trouble, trouble, OK) as script:
        part = scripted_store(script, monkeypatch).read("key")
    assert bytes(part.body) == b"hello"
    assert len(script.requests) == 3


def test_trouble_that_does_not_pass_ends_after_a_bounded_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(SLOW_DOWN) as script, pytest.raises(StoreUnavailableError, match=f"in {TRIES} tries"):
        scripted_store(script, monkeypatch).read("key")
    assert len(script.requests) == TRIES


def test_a_create_is_conditional_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(SLOW_DOWN, Answer(drop=True), Answer()) as script:
        scripted_store(script, monkeypatch).create("key", b"body")
    assert [(method, path) for method, path, _ in script.requests] == [("PUT", "/bucket/prefix/key")] * 3
    assert all(headers["if-none-match"] == "*" for _, _, headers in script.requests)


@pytest.mark.parametrize("status", [412, 409])
def test_a_lost_race_is_no_trouble(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(status), OK) as script, pytest.raises(ObjectExistsError):
        scripted_store(script, monkeypatch).create("key", b"body")
    assert [method for method, _, _ in script.requests] == ["PUT", "HEAD"]


def test_a_conflict_with_a_create_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(409), Answer(404), OK) as script:
        scripted_store(script, monkeypatch).create("key", b"body")
    assert [method for method, _, _ in script.requests] == ["PUT", "HEAD", "PUT"]


def test_a_denial_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(401)) as script, pytest.raises(StoreDeniedError):
        scripted_store(script, monkeypatch).read("key")
    assert len(script.requests) == 1


# --- callers that may not list the whole bucket get 403 where there is no object -----------------------------------


def listing(*keys: str) -> Answer:
    """The answer to a LIST."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>5</Size></Contents>"
        for key in keys
    )
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    return Answer(body=body.encode(), headers={"Content-Type": "application/xml"})


DENIED = Answer(403)


@pytest.mark.parametrize("found", [(), ("prefix/folder/keys", "prefix/folder/kez")])
def test_a_403_for_a_key_that_a_listing_does_not_show_means_missing(
    found: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(DENIED, listing(*found)) as script, pytest.raises(ObjectMissingError):
        scripted_store(script, monkeypatch).read("folder/key")
    [_, (method, path, _)] = script.requests
    assert (method, path.partition("?")[0]) == ("GET", "/bucket")
    # The folder, which the role may list, and no more of it than the key needs.
    assert "prefix=prefix%2Ffolder%2F" in path
    assert "start-after=prefix%2Ffolder%2Fke" in path


@pytest.mark.parametrize("answers", [(DENIED, listing("prefix/key"), DENIED), (DENIED, DENIED, DENIED)])
def test_a_403_for_a_key_that_exists_or_that_may_not_be_listed_is_a_denial(
    answers: tuple[Answer, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in (lambda store: store.read("key"), lambda store: store.exists("key"), lambda store: store.read("key", 3)):
        with scripted(*answers) as script, pytest.raises(StoreDeniedError):
            ask(scripted_store(script, monkeypatch))
        assert len(script.requests) == 3


@pytest.mark.parametrize("ranged", ["read", "stream"])
def test_an_object_that_is_deleted_between_two_tries_of_a_range_is_missing(
    ranged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica sweeps the round: the first GET fails in passing, and the HEAD after it gets a 403."""
    with scripted(Answer(503), DENIED, listing()) as script:
        store = scripted_store(script, monkeypatch)
        with pytest.raises(ObjectMissingError):
            _ = store.read("key", 1, 5) if ranged == "read" else list(store.stream("key", 1, 5))
    assert [method for method, _, _ in script.requests] == ["GET", "HEAD", "GET"]


def test_a_store_that_has_read_an_object_takes_a_403_for_a_missing_one_and_looks_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("muster.replica.store.missing_objects.time.monotonic", lambda: now)
    with scripted(OK, DENIED, listing(), DENIED, DENIED, DENIED, listing("prefix/key"), DENIED) as script:
        store = scripted_store(script, monkeypatch)
        store.read("key")
        assert not store.exists("key")
        now = s3_missing.TRUST_SECONDS - 1
        assert not store.exists("key")
        with pytest.raises(ObjectMissingError):
            list(store.stream("key", 0, 5))
        assert len(script.requests) == 5
        now = s3_missing.TRUST_SECONDS + 1
        with pytest.raises(StoreDeniedError):
            store.read("key")
        assert len(script.requests) == 8


def test_a_conflict_with_a_create_that_fails_is_tried_again_where_s3_hides_that_nothing_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(Answer(409), DENIED, listing(), OK) as script:
        scripted_store(script, monkeypatch).create("key", b"body")
    assert [method for method, _, _ in script.requests] == ["PUT", "HEAD", "GET", "PUT"]


def test_a_container_roles_credentials_are_renewed_before_they_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def credentials(name: str, lifetime: timedelta) -> Answer:
        expires = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": expires}
        return Answer(body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    # One that is about to expire, then one that is not.
    agent = scripted(credentials("first", timedelta(seconds=20)), credentials("second", timedelta(hours=1)))
    with agent as issuer, scripted(OK) as script:
        token = tmp_path / "token"
        token.write_text("bearer")
        scripted_store(script, monkeypatch)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{issuer.port}/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        store = S3ObjectStore("bucket", "")

        def signer() -> str:
            store.read("key")
            return script.requests[-1][2]["authorization"].split("Credential=")[1].split("/")[0]

        assert signer() == "first"
        # obstore lets a tenth of a second pass before it asks again.
        wait_until("the new credentials", lambda: signer() == "second")
        assert signer() == "second"
    assert len(issuer.requests) == 2


def test_a_stream_that_breaks_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.replica.store.s3_store.STREAM_BYTES", 4)

    body = b"0123456789abcdef"

    def part(first: int, *, drop: bool) -> Answer:
        return Answer(206, body[first:], {"Content-Range": f"bytes {first}-{len(body) - 1}/{len(body)}"}, drop=drop)

    # Half of 16 bytes comes, then half of what is left, then all.
    with scripted(part(0, drop=True), part(8, drop=True), part(12, drop=False)) as script:
        store = scripted_store(script, monkeypatch)
        assert b"".join(bytes(piece) for piece in store.stream("key", 0, len(body))) == body
    assert [headers["range"] for _, _, headers in script.requests] == ["bytes=0-15", "bytes=8-15", "bytes=12-15"]


def test_looking_for_what_is_not_there_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(404)) as script:
        store = scripted_store(script, monkeypatch)
        with pytest.raises(ObjectMissingError):
            store.read("key", 0, 10)
        with pytest.raises(ObjectMissingError):
            list(store.stream("key", 0, 10))
    assert [method for method, _, _ in script.requests] == ["GET", "GET"]


@pytest.mark.parametrize("trouble", [SLOW_DOWN, Answer(500), Answer(drop=True)], ids=["503", "500", "reset"])
def test_an_object_that_is_written_piece_by_piece_survives_passing_trouble(
    trouble: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(trouble, trouble, Answer(headers={"ETag": '"x"'})) as script:
        writer = scripted_store(script, monkeypatch).writer("key")
        writer.write(b"one")
        writer.write(memoryview(b"two"))
        writer.close()
    assert [(method, path) for method, path, _ in script.requests] == [("PUT", "/bucket/prefix/key")] * 3
    assert script.requests[-1][2]["content-length"] == "6"


def test_an_object_that_cannot_be_written_piece_by_piece_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(403, b"<Error><Code>AccessDenied</Code></Error>")) as script:
        writer = scripted_store(script, monkeypatch).writer("key")
        writer.write(b"one")
        with pytest.raises(StoreDeniedError):
            writer.close()
    with scripted(SLOW_DOWN) as script:
        writer = scripted_store(script, monkeypatch).writer("key")
        writer.write(b"one")
        with pytest.raises(StoreUnavailableError):
            writer.close()
        writer.discard()
        writer.discard()


# The answers to both ends of a multipart upload: a client reads of each what it needs.
MULTIPART = Answer(
    body=b"<Result><Bucket>bucket</Bucket><Key>key</Key><UploadId>7</UploadId><ETag>x</ETag><Location>l</Location></Result>"
)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as S3 allows."""
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    monkeypatch.setattr(s3_store, "MULTIPART_BYTES", 6 * 2**20)


def multipart(script: Script) -> list[str]:
    """The requests of a multipart upload in words; its parts are sent side by side."""
    words = []
    for method, path, headers in script.requests:
        number = path.partition("partNumber=")[2].partition("&")[0]
        words.append(f"part {number} of {headers['content-length']} bytes" if number else method)
    return words


@pytest.mark.usefixtures("small_parts")
def test_a_large_object_is_written_in_parts_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(MULTIPART) as script:
        writer = scripted_store(script, monkeypatch).writer("key")
        for _ in range(12):
            writer.write(memoryview(b"x" * 2**20))
        wait_until("the first part", lambda: len(script.requests) > 1)
        writer.close()
    create, *parts, complete = multipart(script)
    assert (create, complete) == ("POST", "POST")
    assert sorted(parts) == [f"part {n} of {size * 2**20} bytes" for n, size in ((1, 5), (2, 5), (3, 2))]


@pytest.mark.parametrize("mib", [1, 64, 256, 1024, 150 * 1024])
def test_of_an_object_that_is_written_piece_by_piece_little_is_in_memory(mib: int) -> None:
    part, at_once = s3_store._pace(mib * 2**20)
    assert 5 * 2**20 <= part <= s3_store.PART_BYTES
    assert mib * 2**20 <= 10_000 * part  # S3: parts of an upload
    # Those that are sent, and the one that is being collected.
    assert (at_once + 1) * part <= max(10 * 2**20, mib * 2**20 // 8)
    # One connection carries 85 MB/s.
    assert at_once >= min(16, mib // 256)


@pytest.mark.usefixtures("small_parts")
def test_a_large_object_that_is_given_up_is_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(MULTIPART) as script:
        writer = scripted_store(script, monkeypatch).writer("key")
        for _ in range(12):
            writer.write(b"x" * 2**20)
        writer.discard()
    assert multipart(script).count("POST") == 1


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("status", "error"), [(403, StoreDeniedError), (503, StoreUnavailableError)])
def test_a_large_object_that_cannot_be_written_ends_while_it_is_made(
    status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(s3_store._PART_RETRIES, "backoff", {"init_backoff": timedelta(milliseconds=1)})
    monkeypatch.setitem(s3_store._PART_RETRIES, "max_retries", 2)
    refusal = Answer(status, b"<Error><Code>Refused</Code></Error>")
    with scripted(MULTIPART, refusal) as script:
        writer = scripted_store(script, monkeypatch).writer("key")

        def write() -> None:
            for _ in range(100):
                writer.write(b"x" * 2**20)

        with pytest.raises(error):
            write()
        writer.discard()
