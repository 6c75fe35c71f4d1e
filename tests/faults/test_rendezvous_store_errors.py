"""Every request of every replica fails once, in each way in which S3 fails."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.replica.store import s3_store
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import Store, StoreUnavailableError
from muster.replica.wire import keys
from tests.support.moody_s3 import Mood, moody_s3
from tests.support.peers import Faults, Run, all_ended, missing_only_in
from tests.support.rendezvous_keys import is_like, of_round


@dataclass
class S3Run(Run):
    """A run whose rendezvous is in the bucket that the environment names."""

    @property
    def store(self) -> Store:
        return S3ObjectStore("bucket", "rendezvous/run/")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [*(name for name in os.environ if name.startswith("AWS_")), *s3_store.CA_VARIABLES]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(s3_store, "BACKOFF_FIRST_SECONDS", 0.001)
    return monkeypatch


@pytest.mark.parametrize("bulk_from", [s3_store.BULK_BYTES, 1], ids=["small", "bulk"])
@pytest.mark.parametrize("mood", list(Mood), ids=lambda mood: mood.name)
def test_a_store_that_fails_at_every_call_changes_nothing(
    tmp_path: Path, environment: pytest.MonkeyPatch, mood: Mood, bulk_from: int
) -> None:
    environment.setattr(s3_store, "BULK_BYTES", bulk_from)
    environment.setattr(s3_store, "CREATION_BYTES", 4 * bulk_from)
    with moody_s3(mood) as s3:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
        run = S3Run(tmp_path, rounds=4, snapshot_rounds=1)
        peers = run.start_all()
        with all_ended(peers):
            assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    prefix = "rendezvous/run/"
    kinds = {key.removeprefix(prefix).split("/")[0] for key in s3.objects}
    assert {"claims", "commits", "manifests"} <= kinds
    assert not any(is_like(key, prefix + of_round(keys.CONTRIBUTIONS, 1)) for key in s3.objects), "nothing was swept"
    # Counted effects: at least each object that was written failed, and each kind of request that the mood is about.
    methods = {Mood.TRUNCATED: {"GET"}, Mood.CONFLICT: {"PUT"}}.get(mood, {"GET", "HEAD", "PUT", "POST"})
    assert set(s3.failed) == methods
    if "PUT" in methods:
        assert s3.failed["PUT"] >= len(s3.objects)


def test_a_store_that_is_gone_ends_the_replica_with_that_reason_and_the_others_continue(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    missing_only_in(environment, 2)
    with moody_s3(Mood.SLOW_DOWN) as s3:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3.port}")
        run = S3Run(tmp_path, min_participants=2)

        def out_of_reach(key: str) -> None:
            if is_like(key, of_round(keys.CONTRIBUTIONS, 2)):
                raise StoreUnavailableError(key, s3_store.TRIES, "503")

        victim = run.start(1, faults=Faults(before_create=out_of_reach))
        others = run.start_behind(victim, of_round(keys.CONTRIBUTIONS, 2), 0, 2)
        with all_ended([victim, *others]):
            assert isinstance(victim.join().error, StoreUnavailableError)
            assert len({peer.parameters() for peer in others}) == 1
