"""What every store promises, kept by a directory and by S3 (the embedded cloud, over TLS with its own authority)."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from muster.local import LocalCloud
from muster.replica.store import s3_store
from muster.replica.store.local_store import LocalStore
from muster.replica.store.s3_store import TRIES, S3ObjectStore
from muster.replica.store.transport import (
    ObjectExistsError,
    ObjectMissingError,
    Store,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.plugins.cloud import Workshop, turn_to
from tests.unit.replica.peers import wait_until
from tests.unit.replica.scripted_s3 import Answer, Script, scripted

OK = Answer(body=b"hello", headers={"Content-Range": "bytes 0-4/5"})
SLOW_DOWN = Answer(503, b"<Error><Code>SlowDown</Code></Error>")


@pytest.fixture
def in_cloud(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's environment is that of a container in the embedded cloud."""
    turn_to(monkeypatch, cloud)


@pytest.fixture(params=["directory", "S3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return LocalStore(tmp_path)
    request.getfixturevalue("in_cloud")
    workshop: Workshop = request.getfixturevalue("workshop")
    return S3ObjectStore(workshop.bucket, f"rendezvous/{workshop.name('run')}/")


def test_what_is_created_is_read_whole_and_in_part(store: Store) -> None:
    store.create("a/b", b"0123456789")
    assert store.exists("a/b")
    for start, stop, expected in [
        (0, None, b"0123456789"),
        (0, 4, b"0123"),
        (3, 5, b"34"),
        (7, None, b"789"),
        (7, 100, b"789"),
        (10, 20, b""),
        (50, 60, b""),
    ]:
        part = store.read("a/b", start, stop)
        assert (bytes(part.body), part.size) == (expected, 10)


def test_an_empty_object_is_no_error(store: Store) -> None:
    store.create("empty", b"")
    part = store.read("empty", 0, 4096)
    assert (bytes(part.body), part.size) == (b"", 0)


def test_what_is_missing_is_said_to_be_missing(store: Store) -> None:
    assert not store.exists("nothing")
    with pytest.raises(ObjectMissingError, match=r"nothing does not exist\."):
        store.read("nothing")
    with pytest.raises(ObjectMissingError):
        store.read("nothing", 0, 10)


def test_an_object_is_created_once(store: Store) -> None:
    store.create("once", b"first")
    with pytest.raises(ObjectExistsError):
        store.create("once", b"second")
    assert bytes(store.read("once").body) == b"first"


def test_keys_are_listed_in_order_and_up_to_a_key(store: Store) -> None:
    for key in ("a/2/y", "a/1/x", "a/3/z", "ab/1", "b"):
        store.create(key, b"")
    assert store.keys("a/", "b") == ["a/1/x", "a/2/y", "a/3/z"]
    assert store.keys("a/", "a/3") == ["a/1/x", "a/2/y"]
    assert store.keys("nothing/", "z") == []


def test_what_is_deleted_is_gone_and_what_was_gone_is_no_error(store: Store) -> None:
    for key in ("a/1", "a/2", "a/3"):
        store.create(key, b"")
    store.delete(["a/1", "a/3", "a/4"])
    store.delete(["a/1"])
    store.delete([])
    assert store.keys("a/", "b") == ["a/2"]
    with pytest.raises(ObjectMissingError):
        store.read("a/1")


def test_an_object_says_when_it_was_created(store: Store) -> None:
    before = time.time()
    store.create("a", b"x")
    # S3 counts whole seconds.
    assert before - 1 <= store.read("a").created_at <= time.time()
    assert store.read("a", 5, 6).created_at == store.read("a").created_at


def test_of_many_that_create_at_once_one_wins(store: Store) -> None:
    def create(index: int) -> bool:
        try:
            store.create("race", str(index).encode())
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(16)))
    assert won.count(True) == 1
    assert bytes(store.read("race").body) == str(won.index(True)).encode()


def test_a_role_without_the_permission_is_denied_at_once(
    in_cloud: None, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = workshop.access_key([{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    store = S3ObjectStore(workshop.bucket, "")
    with pytest.raises(StoreDeniedError, match="check the replica role"):
        store.read("anything")
    with pytest.raises(StoreDeniedError):
        store.create("anything", b"")


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


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_is_not_tried_again(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(Answer(status)) as script, pytest.raises(StoreDeniedError):
        scripted_store(script, monkeypatch).read("key")
    assert len(script.requests) == 1


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
        wait_until(lambda: signer() == "second")
        assert signer() == "second"
    assert len(issuer.requests) == 2


def test_a_stream_brings_what_reading_does(store: Store) -> None:
    body = bytes(range(256)) * 8
    store.create("object", body)
    for start, stop in ((0, 2048), (3, 1500), (2000, 9999), (2048, 9999)):
        assert b"".join(bytes(piece) for piece in store.stream("object", start, stop)) == body[start:stop]
    with pytest.raises(ObjectMissingError):
        list(store.stream("missing", 0, 10))


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


def test_what_is_large_is_uploaded_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5 * 2**20  # the least that S3 takes
    monkeypatch.setattr(s3_store, "PART_BYTES", part)
    monkeypatch.setattr(s3_store, "MULTIPART_BYTES", part)
    body = np.random.default_rng(0).integers(0, 256, 2 * part + 3, np.uint8)
    store.upload("large", body.data)
    assert store.read("large").body == body.data
    assert store.read("large", part - 2, part + 2).body == body.data[part - 2 : part + 2]


def test_what_is_small_is_uploaded_as_it_is_created(store: Store) -> None:
    store.upload("small", b"once")
    with pytest.raises(ObjectExistsError):
        store.upload("small", b"twice")
