"""What reaches the sinks of a replica, and that its end reaches them, too."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.metric_sinks import MetricSinks
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry import main as entry
from muster.replica.entry.container_tree import Tree
from muster.replica.errors import InputError, ParametersError, WatchError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.inner_group import InnerGroup
from muster.replica.group.member import Member
from muster.replica.rounds.commit_store import read_commit
from muster.replica.sinks import open_sinks as sinks_of_document
from muster.replica.sinks import writer
from muster.replica.sinks.identity import Identity
from muster.replica.sinks.open_sinks import open_sinks
from muster.replica.sinks.writer import Ending, MetricsWriter, Record
from tests.support.contexts import context_of, trained
from tests.support.peers import Run
from tests.support.waiting import wait_until

TRAINERS = "tests.support.jobs.trainers"


class Kept:
    """Keeps what it gets, and asks the process to end once it gets the metric `waiting`."""

    name = "kept"

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.ending: Ending | None = None

    def write(self, records: Sequence[Record]) -> None:
        self.written += records
        if any("waiting" in record.values for record in records):
            # To the thread that waits: a signal that another thread gets does not wake it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def close(self, ending: Ending) -> None:
        self.ending = ending

    def steps_of(self, name: str) -> list[int]:
        return [record.step for record in self.written if name in record.values]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """The only sink of replicas that run in this process."""
    sink, before = Kept(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(entry, "open_sinks", lambda *_: MetricsWriter([sink]))
    yield sink
    signal.signal(signal.SIGTERM, before)


def document(folder: Path, trainer: str = "train", **fields: Any) -> RunDocument:
    defaults: dict[str, Any] = {
        "run": "test",
        "plan_digest": "0",
        "replicas": 1,
        "trainer": f"{TRAINERS}:{trainer}",
        "kwargs": {"rounds": 3},
        "rendezvous_uri": f"{(folder / 'rendezvous').as_uri()}/",
        "min_participants": 1,
        "grace_seconds": 0.2,
        "timeout_seconds": 60.0,
    }
    return RunDocument(**{**defaults, **fields})


def run_here(folder: Path, trainer: str, kwargs: dict[str, Any], member: Member | None = None) -> ReplicaExit:
    """Run a replica in this process."""
    (folder / "opt").mkdir(parents=True)
    (folder / "document.json").write_bytes(document(folder, trainer, kwargs=kwargs).to_json())
    variables = {
        "MUSTER_DOCUMENT": (folder / "document.json").as_uri(),
        "MUSTER_RUN": "test",
        "MUSTER_RANK": "0",
        "MUSTER_ATTEMPT": "1",
        "SAGEMAKER_BASE_DIR": str(folder / "opt"),
    }
    return entry.main(variables, member=member)


def test_metrics_reach_the_sinks_with_the_step_of_the_run_and_with_the_rates(tmp_path: Path, kept: Kept) -> None:
    assert run_here(tmp_path, "train", {"rounds": 3}) is ReplicaExit.DONE
    assert kept.steps_of("loss") == [1, 2, 3]
    assert kept.steps_of("utilisation") == [1, 2, 3]
    assert len(kept.steps_of("samples_per_second")) == len(kept.steps_of("run_samples_per_second")) == 2
    assert kept.ending is Ending.DONE


def test_a_trainer_that_fails_ends_its_series_as_failed(tmp_path: Path, kept: Kept) -> None:
    trainer = {"round_": 2, "size": 1}
    assert run_here(tmp_path, "fail_once_at", trainer) is ReplicaExit.USER_CODE
    assert kept.ending is Ending.FAILED


def test_what_a_stopped_replica_has_logged_is_written_before_it_ends(tmp_path: Path, kept: Kept) -> None:
    assert run_here(tmp_path, "wait_to_be_stopped", {"rounds": 1}) is ReplicaExit.STOPPED
    assert kept.steps_of("waiting") == [1]
    assert kept.ending is Ending.STOPPED


def test_what_a_replica_that_hangs_has_logged_is_written_after_its_reason(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def found_hanging(context: Context, end_now: Callable[[WatchError], None]) -> Iterator[None]:
        context.metrics.log(loss=0.5)
        end_now(WatchError(ReplicaExit.HANG, "no step for 600 s"))
        yield

    def exited(code: int) -> None:
        assert kept.steps_of("loss") == [0]
        assert kept.ending is Ending.FAILED
        assert (tmp_path / "opt" / "output" / "failure").exists()
        raise SystemExit(code)

    monkeypatch.setattr(entry, "_watched", found_hanging)
    monkeypatch.setattr(entry, "os", SimpleNamespace(_exit=exited))
    with pytest.raises(SystemExit) as ended:
        run_here(tmp_path, "do_nothing", {})
    assert ended.value.code is ReplicaExit.HANG


def test_a_sink_that_hangs_does_not_keep_the_process_from_its_end(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(kept, "close", lambda _: released.wait(60))
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(entry, "os", SimpleNamespace(_exit=sys.exit))
    try:
        with pytest.raises(SystemExit) as ended:
            run_here(tmp_path, "train", {"rounds": 1})
        assert ended.value.code is ReplicaExit.DONE
    finally:
        released.set()
    wait_until("the end of the sink", lambda: not writer.has_hanging_sinks())
    assert run_here(tmp_path / "again", "do_nothing", {}) is ReplicaExit.USER_CODE


@pytest.mark.parametrize(("member", "opened"), [(Member(), 1), (Member(InnerGroup(1, 2, 1)), 0)])
def test_only_the_first_process_of_a_replica_has_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: Member, opened: int
) -> None:
    found: list[object] = []

    def noted(*given: object) -> MetricsWriter:
        found.append(given)
        return MetricsWriter()

    def stop_here(*_: object) -> None:
        raise StopIteration

    monkeypatch.setattr(entry, "open_sinks", noted)
    monkeypatch.setattr(entry, "_context", stop_here)
    with pytest.raises(StopIteration):
        run_here(tmp_path, "do_nothing", {}, member)
    assert len(found) == opened


def test_every_package_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_of_document, "find_spec", lambda _: None)
    arn = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
    wanted = {"tensorboard": True, "mlflow": {"tracking_uri": arn}, "wandb": {"project": "gpt"}}
    with pytest.raises(InputError) as missing:
        open_sinks(document(tmp_path, metrics=MetricSinks.model_validate(wanted)), 0, Tree(tmp_path))
    lacks = "which the image lacks: add `pip install"
    assert missing.value.problems == (
        f"metrics.mlflow needs the package mlflow-skinny, {lacks} mlflow-skinny` to it",
        f"metrics.mlflow with an ARN needs the package sagemaker-mlflow, {lacks} sagemaker-mlflow` to it",
        f"metrics.wandb needs the package wandb, {lacks} wandb` to it",
    )


def test_tensorboard_needs_no_package_and_its_files_lie_among_the_checkpoints(tmp_path: Path) -> None:
    opened = open_sinks(document(tmp_path, metrics=MetricSinks(tensorboard=True)), 0, Tree(tmp_path))
    opened.write(1, {"loss": 0.5})
    opened.close()
    assert len(list((tmp_path / "checkpoints" / "tensorboard").iterdir())) == 1


def test_the_names_of_a_replicas_series_follow_from_its_lineage() -> None:
    one = Identity("digits", 3, "s3://bucket/rendezvous/digits/")
    again = Identity("digits", 3, "s3://bucket/rendezvous/digits/")
    elsewhere = Identity("digits", 3, "s3://other/rendezvous/digits/")
    assert one.name == elsewhere.name == "digits-r3"
    assert one.unique_name == again.unique_name != elsewhere.unique_name


def steps_logged(run: Run, algorithm: Algorithm, rounds: int, tmp_path: Path) -> list[int]:
    """The steps of a metric that a trainer logs after every inner step."""
    seen: list[int] = []

    def train(context: Context) -> None:
        outer = DiLoCo(context.rendezvous, {"weights": np.zeros(run.count, np.float32)}, algorithm)
        while outer.round < rounds:
            outer.step()
            seen.append(context.metrics.step)
        outer.finish()

    trained(train, [context_of(run)])
    return seen


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(sync_every=3), Algorithm(sync_every=3, delay=1), Algorithm(sync_every=3, eager=True)],
    ids=["plain", "delayed", "eager"],
)
def test_steps_are_counted_over_rounds_and_restarts(algorithm: Algorithm, tmp_path: Path) -> None:
    run = Run(tmp_path / "store", replicas=1, min_participants=1)
    steps = steps_logged(run, algorithm, 3, tmp_path)
    assert steps == list(range(1, len(steps) + 1))
    if algorithm == Algorithm(sync_every=3):
        # A later process continues at the run's step.
        assert steps_logged(run, algorithm, 4, tmp_path) == [10, 11, 12]


def test_what_a_trainer_expects_is_in_the_commits(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", replicas=1, min_participants=1)

    def train(context: Context) -> None:
        context.expect(rounds=80)
        context.expect(unit="tokens")
        outer = DiLoCo(context.rendezvous, {"weights": np.zeros(run.count, np.float32)}, Algorithm(sync_every=2))
        for _ in range(6):
            outer.step(500)
        outer.finish()

    context = context_of(run)
    trained(train, [context])
    commits = [read_commit(context.rendezvous.context, round_) for round_ in (1, 2, 3)]
    assert all(commit and (commit.expected_rounds, commit.unit) == (80, "tokens") for commit in commits)
    assert [commit and commit.samples for commit in commits] == [1_000.0, 2_000.0, 3_000.0]
    assert commits[0] is not None
    assert commits[0].pace is None
    assert commits[2] is not None
    assert commits[2].pace is not None
    assert commits[2].pace.rounds == 2


def test_what_cannot_be_expected_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    context = context_of(Run(tmp_path / "store", replicas=1, min_participants=1))
    with pytest.raises(ParametersError, match=r"rounds is 0; allowed: 1 to .*; unit is 'Tokens/s'; allowed: "):
        context.expect(rounds=0, unit="Tokens/s")


def test_each_fragments_round_counts_its_share_of_the_samples(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", replicas=1, min_participants=1)

    def train(context: Context) -> None:
        weights = {"a": np.zeros(run.count, np.float32), "b": np.zeros(run.count, np.float32)}
        outer = DiLoCo(context.rendezvous, weights, Algorithm(sync_every=4, fragments=2))
        while outer.round < 6:
            outer.step(100)
        outer.finish()

    context = context_of(run)
    trained(train, [context])
    last = read_commit(context.rendezvous.context, 6)
    assert last is not None
    # Each sample is part of two rounds, but for those of the first interval, which one fragment alone carries.
    assert (last.fragments, last.samples) == (2, 6 * 2 * 100 - 100)
