"""The queue in its bucket: tokens first, then the look, so that whoever gets a queued hears of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from muster.contract.errors import DocumentError
from muster.contract.run.run_queue import QUEUE_KEY, Queue, QueuedRun
from muster.control.admission import RunQueue
from muster.control.aws.store import Store


class Workflows:
    """Who was told that its queued has come; while it is down nobody can be told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.down = False

    def release(self, token: str) -> None:
        if self.down:
            raise ConnectionError
        if token not in self.told:
            self.told.append(token)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RunQueue, Workflows, Store]]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="bucket")
        workflows, store = Workflows(), Store(s3, "bucket", pause=lambda _: None)
        yield RunQueue(store, workflows.release, cap=4), workflows, store


def queued(run: str, replicas: int) -> QueuedRun:
    return QueuedRun(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="t")


def test_who_leaves_calls_the_next_one(queue):
    runs, workflows, _ = queue
    assert runs.ask(queued("a", 3), "token-a")
    assert not runs.ask(queued("b", 2), "token-b")
    assert workflows.told == ["token-a"]
    runs.leave("arn:a")
    assert workflows.told == ["token-a", "token-b"]
    assert runs.is_admitted("arn:b")


def test_a_call_that_was_lost_is_made_by_the_next_one_who_leaves_or_asks(queue):
    runs, workflows, _ = queue
    runs.ask(queued("a", 3), "token-a")
    runs.ask(queued("b", 2), "token-b")
    workflows.down = True
    with pytest.raises(ConnectionError):
        runs.leave("arn:a")
    workflows.down = False
    # Settle is tried again; or the wait of the second run ends, and it asks with a fresh token.
    runs.leave("arn:a")
    assert workflows.told[-1] == "token-b"
    assert runs.ask(queued("b", 2), "token-b2")
    assert workflows.told[-1] == "token-b2"


def test_a_damaged_queue_is_an_error_and_not_an_empty_one(queue):
    runs, _, store = queue
    store.create(QUEUE_KEY, b"damaged")
    with pytest.raises(DocumentError, match=re.escape(QUEUE_KEY)):
        runs.ask(queued("a", 1), "token")


def test_two_who_ask_at_once_do_not_overwrite_each_other(queue):
    runs, _, store = queue
    runs.ask(queued("a", 3), "token-a")
    found = store.get(QUEUE_KEY)
    stale = Queue.from_json(found.body, "queue")
    runs.ask(queued("b", 2), "token-b")
    assert not store.replace(QUEUE_KEY, stale.asked(queued("c", 1), 4).to_json(), found.etag)
