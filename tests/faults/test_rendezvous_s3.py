"""The rendezvous over S3: the embedded cloud, with TLS under its own authority and the role's permissions enforced.

And an S3 at which every request of every replica fails once, in each way in which S3 fails.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit
from muster.local import LocalCloud
from muster.replica.store import s3_store
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import Store, StoreDeniedError
from muster.replica.wire import keys
from tests.support.peers import SHARDED, Faults, Killed, Run, all_ended, kill_at
from tests.support.rendezvous_keys import is_like, of_round, round_of
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


def test_replicas_meet_in_s3_and_one_that_dies_is_replaced(bucket: str, workshop: Workshop, tmp_path: Path) -> None:
    layout = RunLayout(workshop.name("run"))
    run = S3Run(tmp_path, count=SHARDED, snapshot_rounds=1, bucket=bucket, prefix=layout.rendezvous)
    victim = run.start(1, faults=Faults(before_create=kill_at(of_round(keys.REDUCED, 2))))
    others = run.start_behind(victim, of_round(keys.REDUCED, 2), 0, 2)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        successor = run.start(1, attempt=2)
        finals = {peer.parameters() for peer in (*others, successor)}
    assert finals == {run.replayed_by_hand()}
    commits = workshop.keys(layout.commits)
    assert commits == [layout.rendezvous + keys.commit(round_) for round_ in range(1, run.rounds + 1)]
    data = workshop.keys(layout.rendezvous + keys.CONTRIBUTIONS) + workshop.keys(layout.rendezvous + keys.REDUCED)
    assert {round_of(key) for key in data} <= {3, 4}, "the snapshot of round 2, at least, covers all before it"
    newest = Commit.from_json(workshop.read(commits[-1]), commits[-1])
    found = [(member.rank, member.attempt, member.metrics["loss"]) for member in newest.members]
    assert found == [(0, 1, 0.5), (1, 2, 0.5), (2, 1, 0.5)]


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
        swept = prefix + of_round(keys.CONTRIBUTIONS, 1)
        assert not any(is_like(key, swept) for key in s3.objects), f"{mood}: nothing was swept"
        # Counted effects: at least each object that was written failed, and each kind of request of the mood.
        methods = {Mood.TRUNCATED: {"GET"}, Mood.CONFLICT: {"PUT"}}.get(mood, {"GET", "HEAD", "PUT", "POST"})
        assert set(s3.failed) == methods, mood
        if "PUT" in methods:
            assert s3.failed["PUT"] >= len(s3.objects), mood
