import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from muster.contract.errors import ConflictError, DocumentError, OversizedDocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments, Updated
from tests.memory import AwsError, Fault, server_error
from tests.memory.harness import ControlHarness


@pytest.fixture
def store(harness: ControlHarness) -> Store:
    return harness.plane.store


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

    with pytest.raises(ConflictError, match="compare-and-swap tries"):
        documents.update_record(0, always_second)


def test_no_update_is_lost_between_writers(store):
    documents = RunDocuments(store, "run")
    documents.update_record(0, lambda _: record("0"))

    def add_one(_: int) -> None:
        documents.update_record(0, lambda found: found.model_copy(update={"token": str(int(found.token) + 1)}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_one, range(12)))
    assert documents.record(0).record.token == "12"
    assert documents.record(0).record.revision == 13


def test_a_change_that_changes_nothing_writes_nothing(store):
    documents = RunDocuments(store, "run")
    first = record("a").model_copy(update={"revision": 1})
    assert documents.update_record(0, lambda _: record("a")) == Updated(first, written=True)
    etag = store.get(documents.layout.record(0)).etag
    assert documents.update_record(0, lambda found: found) == Updated(first, written=False)
    assert documents.update_record(0, lambda _: None) == Updated(first, written=False)
    assert store.get(documents.layout.record(0)).etag == etag


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"version":2}', b"[1]"])
def test_the_error_of_a_damaged_record_names_its_place(store, body):
    documents = RunDocuments(store, "run")
    store.create(documents.layout.record(0), body)
    with pytest.raises(DocumentError, match=r"^s3://bucket/control/run/replicas/0\.json cannot be read"):
        documents.record(0)


def test_counting_sees_every_page(store):
    for number in range(1_001):
        store.create(f"lost/{number}", b"{}")
    assert store.count("lost/") == 1_001
    assert store.count("other/") == 0


def conflicts(count: int) -> Fault:
    """Two conditional writes met: S3 answers 409 to one of them, which may try again."""
    return Fault("PutObject", AwsError("ConditionalRequestConflict", "Please try again.", 409), count=count)


def test_a_conditional_write_that_met_another_one_is_tried_again(harness, store):
    harness.cloud.calls.inject(conflicts(3))
    assert store.create("key", b"one")
    assert harness.cloud.calls.counts()["PutObject"] == 4
    assert 0 < harness.cloud.clock.monotonic() < 1
    harness.cloud.calls.inject(conflicts(1))
    assert store.replace("key", b"two", store.get("key").etag)
    assert store.get("key").body == b"two"


def test_a_conditional_write_that_meets_others_without_end_is_given_up(harness, store):
    harness.cloud.calls.inject(conflicts(20))
    with pytest.raises(ConflictError, match=r"s3://bucket/key changed during each of 20"):
        store.create("key", b"one")


def test_a_write_that_is_denied_is_an_error(harness, store):
    harness.cloud.calls.inject(Fault("PutObject", AwsError("AccessDenied", "kms:GenerateDataKey", 403)))
    with pytest.raises(ClientError, match="AccessDenied"):
        store.create("key", b"one")


def test_a_lost_answer_to_a_creation_is_a_lost_race(store, harness):
    """The second try meets the object of the first; the caller reads what stands."""
    harness.cloud.calls.inject(server_error("PutObject", after_effect=True))
    with pytest.raises(ClientError):
        store.create("key", b"mine")
    assert not store.create("key", b"mine")
    assert store.get("key").body == b"mine"


def test_an_object_is_read_within_its_bound_or_refused_by_its_size(store):
    store.create("key", bytes(100))
    store.create("empty", b"")
    assert (len(store.read_bounded("key", 100)), store.read_bounded("empty", 10)) == (100, b"")
    assert store.read_bounded("nothing", 10) is None
    with pytest.raises(OversizedDocumentError, match="it has 100 bytes; at most 99 are read"):
        store.read_bounded("key", 99)
