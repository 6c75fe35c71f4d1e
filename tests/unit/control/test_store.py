import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from muster.contract.errors import ConflictError, DocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments


@pytest.fixture
def store(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="bucket")
        yield Store(s3, "bucket", pause=lambda _: None)


class OneAtATime:
    """A client that sends one request after the other: moto looks and writes in two steps, where S3 does it in one."""

    def __init__(self, client):
        self._client = client
        self._lock = threading.Lock()

    def __getattr__(self, name):
        call = getattr(self._client, name)

        def one_call(**request):
            with self._lock:
                return call(**request)

        return one_call


def record(token: str) -> Record:
    return Record(
        run="run", rank=0, token=token, armed_at="t", attempts=(Attempt(attempt=1, job="j", launched_at="t"),)
    )


def test_of_two_creators_the_first_wins(store):
    assert store.create("key", b"first")
    assert not store.create("key", b"second")
    assert store.get("key").body == b"first"


def test_a_replacement_needs_the_current_version(store):
    store.create("key", b"one")
    seen = store.get("key")
    assert store.replace("key", b"two", seen.etag)
    assert not store.replace("key", b"three", seen.etag)
    assert store.get("key").body == b"two"


def test_a_missing_object_is_none_but_a_missing_bucket_is_an_error(store):
    assert store.get("nothing") is None
    with pytest.raises(ClientError, match="NoSuchBucket"):
        Store(store.s3, "elsewhere").get("nothing")


def test_a_writer_that_never_wins_gives_up(store):
    documents = RunDocuments(store, "run")
    tokens = itertools.count()

    def always_second(_):
        store.s3.put_object(
            Bucket="bucket", Key=documents.layout.record(0), Body=record(f"theirs {next(tokens)}").to_json()
        )
        return record("ours")

    with pytest.raises(ConflictError, match="written by others"):
        documents.update_record(0, always_second)


def test_no_update_is_lost_between_writers(store):
    documents = RunDocuments(Store(OneAtATime(store.s3), "bucket", pause=lambda _: None), "run")
    documents.update_record(0, lambda _: record("0"))

    def add_one(_: int) -> None:
        documents.update_record(0, lambda found: found.model_copy(update={"token": str(int(found.token) + 1)}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_one, range(12)))
    assert documents.record(0).record.token == "12"


def test_a_change_that_changes_nothing_writes_nothing(store):
    documents = RunDocuments(store, "run")
    documents.update_record(0, lambda _: record("a"))
    etag = store.get(documents.layout.record(0)).etag
    assert documents.update_record(0, lambda found: found) == record("a")
    assert documents.update_record(0, lambda _: None) == record("a")
    assert store.get(documents.layout.record(0)).etag == etag


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"version":2}', b"[1]"])
def test_a_damaged_record_is_told_by_its_place(store, body):
    documents = RunDocuments(store, "run")
    store.create(documents.layout.record(0), body)
    with pytest.raises(DocumentError, match=r"^s3://bucket/control/run/replicas/0\.json cannot be read"):
        documents.record(0)


def test_counting_sees_every_page(store):
    for number in range(5):
        store.create(f"lost/{number}", b"{}")
    assert store.count("lost/") == 5
    assert store.count("other/") == 0
