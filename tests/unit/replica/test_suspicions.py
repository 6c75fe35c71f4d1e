"""A round that misses a rank on a cluster is reported, and never waits for that."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from muster.contract.hyperpod.backend import Backend
from muster.contract.hyperpod.notices import Notice, NoticeKind
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.spec import Spec
from muster.contract.training.overrides import Override
from muster.replica.rounds import agreement
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.suspicions import RANKS_MAX, Suspicions
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, StoreDeniedError
from tests.support.job_requests import plan_of
from tests.support.peers import Returned, Run, missing_only_in
from tests.support.waiting import wait_until


@pytest.fixture
def pool() -> Executor:
    return ThreadPoolExecutor(1)


class WithClusters(Run):
    """A run whose ranks 1 and 2 run on clusters."""

    notices: LocalStore

    def context(self, *arguments: object) -> RoundContext:
        return replace(
            super().context(*arguments),  # type: ignore[arg-type]
            suspicions=Suspicions(self.notices, "run", ((1, 2),)),
        )


def test_a_commit_without_an_expected_rank_of_a_cluster_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 2)
    run = WithClusters(tmp_path / "run", replicas=3, min_participants=2, rounds=4)
    run.notices = LocalStore(tmp_path / "notices")

    def leaves(round_: int) -> None:
        if round_ == 2:
            raise Returned

    peers = [run.start(0), run.start(1), run.start(2, before_step=leaves)]
    for peer in peers[:2]:
        peer.join()
    name = Notice("run", NoticeKind.MISSING, 2, None, "2").name
    wait_until("the report", (tmp_path / "notices" / name).exists)
    assert [path.name for path in (tmp_path / "notices").iterdir()] == [name]


def test_a_round_that_waits_for_long_reports_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "WAITING_LOGGED_SECONDS", 0.2)
    run = WithClusters(tmp_path / "run", replicas=3, min_participants=3, rounds=1)
    run.notices = LocalStore(tmp_path / "notices")
    first = [run.start(0), run.start(1)]
    wait_until("the report", (tmp_path / "notices" / "missing-r2-1.json").exists)
    last = run.start(2)
    for peer in [*first, last]:
        peer.join()


def test_ranks_of_training_jobs_are_not_reported(tmp_path: Path, pool: Executor) -> None:
    Suspicions(LocalStore(tmp_path), "run", ((1, 1), (4, 5))).report(pool, 7, [0, 1, 2, 3, 5])
    pool.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["missing-r1-7.json", "missing-r5-7.json"]


def test_a_round_has_a_bounded_number_of_reports(tmp_path: Path, pool: Executor) -> None:
    Suspicions(LocalStore(tmp_path), "run", ((0, 9_999),)).report(pool, 1, range(10_000))
    pool.shutdown()
    assert len(list(tmp_path.iterdir())) == RANKS_MAX


def test_a_store_that_hangs_or_denies_delays_nothing(tmp_path: Path) -> None:
    let_go, asked = threading.Event(), threading.Event()

    class Hangs(LocalStore):
        def create(self, key: str, body: Bytes) -> None:
            asked.set()
            let_go.wait(60)
            raise StoreDeniedError(key, "no")

    pool = ThreadPoolExecutor(1)
    Suspicions(Hangs(tmp_path), "run", ((0, 1),)).report(pool, 1, [0])
    asked.wait(60)
    let_go.set()
    pool.shutdown()
    assert not list(tmp_path.iterdir())


def spec(**fields: object) -> Spec:
    made = {"image": "image", "trainer": "package:train", "replicas": 6, **fields}
    return Spec.model_validate(made)


def test_the_run_document_names_the_ranks_on_clusters() -> None:
    hyperpod = Override(backend=Backend.HYPERPOD)
    document = RunDocument.of(plan_of(spec(overrides={"1": hyperpod, "3-5": hyperpod})))
    assert document.cluster_ranks == ((1, 1), (3, 5))
    assert document.notices_uri == "s3://bucket/notices/run/"


def test_a_run_of_training_jobs_reports_nothing() -> None:
    document = RunDocument.of(plan_of(spec()))
    assert (document.cluster_ranks, document.notices_uri) == ((), None)
