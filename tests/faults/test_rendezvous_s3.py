"""The rendezvous over S3: the embedded cloud, with TLS under its own authority and the role's permissions enforced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit
from muster.local import LocalCloud
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import Store, StoreDeniedError
from muster.replica.wire import keys
from tests.support.peers import SHARDED, Faults, Killed, Run, all_ended, kill_at
from tests.support.rendezvous_keys import of_round, round_of
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
