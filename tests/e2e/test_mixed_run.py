"""A run with replicas on both backends: two training jobs and two jobs on a HyperPod cluster, in one rendezvous."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.deployed_stack import Stack, open_stack
from muster import Backend, Muster, Run, RunStatus
from muster.contract.run.result import Verdict
from muster.local.hyperpod.cluster_settings import ClusterSettings

ROOT = Path(__file__).parents[2]
ON_CLUSTER = (2, 3)
SPEC = {
    "replicas": 4,
    "trainer": "examples.digits.trainer:train",
    "source_dir": None,
    "kwargs": {"rounds": 6, "seconds_per_round": 0.2},
    "instance_type": "ml.m5.xlarge",
    "overrides": {"2-3": {"backend": "hyperpod", "hyperpod": {"queue": "hyperpod-ns-team-localqueue"}}},
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with open_stack(ClusterSettings(nodes=2, node_type="ml.m5.xlarge"), (ROOT,)) as stack:
        yield stack


@pytest.fixture
def muster(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Muster:
    for name, value in stack.cloud.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    return Muster()


def test_training_jobs_and_jobs_on_a_cluster_end_with_the_same_bytes(
    muster: Muster, stack: Stack, tmp_path: Path
) -> None:
    seen: list[RunStatus] = []
    run = muster.launch({**SPEC, "name": "mixed"})
    last = run.wait(240, seen.append, 0.2)
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED, result.reason
    assert result.parameters_identical
    assert len({replica.checksum for replica in result.replicas}) == 1
    assert [replica.round for replica in result.replicas] == [6] * 4
    backends = [Backend.HYPERPOD if rank in ON_CLUSTER else Backend.TRAINING_JOB for rank in range(4)]
    assert [replica.backend for replica in last.replicas] == backends
    assert [replica.backend for replica in seen[0].replicas] == backends, "known before anything is launched"
    for replica in result.replicas:
        [attempt] = replica.attempts
        assert (attempt.cluster is not None) is (replica.rank in ON_CLUSTER)
        if attempt.cluster is not None:
            assert (attempt.cluster.cluster, attempt.cluster.instances) == ("muster-local", 1)
            assert replica.instance_seconds
            assert replica.usd
    assert_logs_are_merged(run)
    assert_nothing_is_left(stack)
    model = run.model_download(tmp_path / "model").fetch()
    assert model.files
    launched = [entry for entry in run.events() if entry.kind.value == "replica-launched"]
    assert sorted(entry.rank or 0 for entry in launched if "on muster-local" in entry.text) == [*ON_CLUSTER]
    page = run.report().decode()
    assert "muster-local" in page


def assert_logs_are_merged(run: Run) -> None:
    lines = list(run.logs())
    assert {line.rank for line in lines} == set(range(4))
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert {line.rank for line in run.logs(ON_CLUSTER)} == set(ON_CLUSTER)


def assert_nothing_is_left(stack: Stack) -> None:
    """No job, pod or process outlives its run."""
    assert stack.cloud.running_jobs() == []


def test_a_cancelled_run_leaves_nothing_on_either_backend(muster: Muster, stack: Stack) -> None:
    kwargs = {"rounds": 10_000, "seconds_per_round": 0.2}
    run = muster.launch({**SPEC, "name": "cancelled", "kwargs": kwargs})

    def train(status: RunStatus) -> None:
        if status.round is not None and status.round >= 1 and status.state == "running":
            run.cancel()

    last = run.wait(240, train, 0.2)
    assert last.state == "stopped"
    assert {replica.ends[-1] for replica in last.replicas if replica.ends} == {"stopped-by-muster"}
    assert_nothing_is_left(stack)
