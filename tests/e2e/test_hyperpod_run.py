"""Runs on the embedded HyperPod cluster, end to end: the digits example as jobs of pods."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.deployed_stack import Stack, open_stack
from muster import Muster, Run, RunStatus
from muster.contract.run.result import Result, Verdict
from muster.local.faults import LostNode
from muster.local.hyperpod.cluster_settings import ClusterSettings

ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "trainer": "examples.digits.trainer:train",
    "source_dir": None,
    "kwargs": {"rounds": 5, "seconds_per_round": 0.2},
    "instance_type": "ml.m5.xlarge",
    "backend": "hyperpod",
    "hyperpod": {"queue": "hyperpod-ns-team-localqueue"},
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with open_stack(ClusterSettings(nodes=3, node_type="ml.m5.xlarge"), code=(ROOT,)) as stack:
        yield stack


@pytest.fixture
def muster(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Muster:
    for name, value in stack.cloud.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    return Muster()


def ended(run: Run, watch: Callable[[RunStatus], None] = lambda _: None) -> Result:
    run.wait(240, watch, 0.2)
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED, result.reason
    return result


def launch(muster: Muster, name: str, **fields: Any) -> Run:
    return muster.launch({**SPEC, "name": name, **fields})


def test_a_single_replica_trains_on_the_cluster(muster: Muster, stack: Stack) -> None:
    [replica] = ended(launch(muster, "single", replicas=1)).replicas
    assert (replica.round, len(replica.attempts)) == (5, 1)
    assert replica.checkpoint_uri is not None
    assert stack.cloud.running_jobs() == []


def test_two_replicas_lose_a_node_and_end_with_the_same_bytes(muster: Muster, stack: Stack) -> None:
    lost: list[int] = []

    def lose(status: RunStatus) -> None:
        if not lost and status.round is not None and status.round >= 2:
            lost.append(status.round)
            stack.cloud.faults.add(LostNode(job=f"{stack.outputs['JobPrefix']}-pair-r1-a1", after_seconds=0.0))

    run = launch(muster, "pair", replicas=2, kwargs={"rounds": 20, "seconds_per_round": 0.5})
    result = ended(run, lose)
    assert result.parameters_identical
    assert [replica.round for replica in result.replicas] == [20, 20]
    assert len({replica.checksum for replica in result.replicas}) == 1
    # The operator started the pod again on another node: an incarnation, and no attempt.
    [attempt] = result.replicas[1].attempts
    lines = [line.message for line in run.logs((1,))]
    seats = [line for line in lines if "event=seated" in line]
    assert ["incarnation=1" in line for line in seats] == [True, False], seats
    assert attempt.attempt == 1


def test_delivered_code_runs_in_an_image_with_python_and_boto3(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "code" / "examples" / "digits")
    (tmp_path / "code" / "examples" / "__init__.py").touch()
    [replica] = ended(launch(muster, "delivered", replicas=1, source_dir=str(tmp_path / "code"))).replicas
    assert replica.round == 5
