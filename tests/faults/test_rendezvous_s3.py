"""The rendezvous over S3: the embedded cloud, with TLS under its own authority and the role's permissions enforced.

And an S3 at which every request of every replica fails once, in each way in which S3 fails.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.local import LocalCloud
from muster.replica.store import s3_store
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import Store, StoreDeniedError
from muster.replica.wire import rendezvous_keys
from tests.support.peers import Run, all_ended
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.s3_server import Mood, s3_server
from tests.support.workshop import Workshop, turn_to


@dataclass
class S3Run(Run):
    """A run whose rendezvous is in a bucket."""

    bucket: str = ""
    prefix: str = ""

    @property
    def store(self) -> Store:
        return S3ObjectStore(self.bucket, self.prefix)


@pytest.fixture
def bucket(workshop: Workshop, cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket that this process reaches with what a replica role may do, and no more."""
    turn_to(monkeypatch, cloud)
    objects = f"arn:aws:s3:::{workshop.bucket}/rendezvous/*"
    key = workshop.access_key(
        [
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "Resource": objects},
            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{workshop.bucket}"},
        ]
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    return workshop.bucket


def test_a_role_that_may_not_write_there_is_refused_at_once(bucket: str, tmp_path: Path) -> None:
    run = S3Run(tmp_path, bucket=bucket, prefix="control/run/")
    peer = run.start(0).join()
    assert isinstance(peer.error, StoreDeniedError)
    assert "check the replica role and the bucket's policy" in str(peer.error)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [*(name for name in os.environ if name.startswith("AWS_")), *s3_store.CA_VARIABLES]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(s3_store, "BACKOFF_FIRST_SECONDS", 0.001)
    return monkeypatch


@pytest.mark.parametrize("bulk_from", [s3_store.BULK_BYTES, 1], ids=["small", "bulk"])
def test_a_store_that_fails_at_every_call_changes_nothing(
    tmp_path: Path, environment: pytest.MonkeyPatch, bulk_from: int
) -> None:
    environment.setattr(s3_store, "BULK_BYTES", bulk_from)
    environment.setattr(s3_store, "CREATION_BYTES", 4 * bulk_from)
    prefix = "rendezvous/run/"
    for mood in Mood:
        with s3_server(mood) as s3:
            environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
            run = S3Run(tmp_path, rounds=4, snapshot_rounds=1, bucket="bucket", prefix=prefix)
            peers = run.start_all()
            with all_ended(peers):
                assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}, mood
        kinds = {key.removeprefix(prefix).split("/")[0] for key in s3.objects}
        assert {"claims", "commits", "manifests"} <= kinds, mood
        swept = prefix + of_round(rendezvous_keys.CONTRIBUTIONS, 1)
        assert not any(is_like(key, swept) for key in s3.objects), f"{mood}: nothing was swept"
        # Counted effects: at least each object that was written failed, and each kind of request of the mood.
        methods = {Mood.TRUNCATED: {"GET"}, Mood.CONFLICT: {"PUT"}}.get(mood, {"GET", "HEAD", "PUT", "POST"})
        assert set(s3.failed) == methods, mood
        if "PUT" in methods:
            assert s3.failed["PUT"] >= len(s3.objects), mood
