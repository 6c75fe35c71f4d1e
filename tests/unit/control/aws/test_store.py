import itertools

import pytest
from botocore.exceptions import ClientError

from muster.contract.errors import ConflictError, OversizedDocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record
from muster.control.aws.store import DocumentStore
from muster.control.documents import RunDocuments
from tests.memory import AwsError, Fault
from tests.memory.harness import ControlHarness


@pytest.fixture
def store(harness: ControlHarness) -> DocumentStore:
    return harness.plane.store


def record(token: str) -> Record:
    return Record(
        run="run", rank=0, token=token, armed_at="t", attempts=(Attempt(attempt=1, job="j", launched_at="t"),)
    )


def test_a_missing_object_is_none_but_a_missing_bucket_is_an_error(store):
    assert store.get("nothing") is None
    with pytest.raises(ClientError, match="NoSuchBucket"):
        DocumentStore(store.s3, "elsewhere").get("nothing")


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
    with pytest.raises(ConflictError, match="s3://bucket/key"):
        store.create("key", b"one")


def test_an_object_is_read_within_its_bound_or_refused_by_its_size(store):
    store.create("key", bytes(100))
    store.create("empty", b"")
    assert (len(store.read_bounded("key", 100)), store.read_bounded("empty", 10)) == (100, b"")
    assert store.read_bounded("nothing", 10) is None
    with pytest.raises(OversizedDocumentError, match=r"100 bytes; .* 99"):
        store.read_bounded("key", 99)
