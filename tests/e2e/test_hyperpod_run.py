"""Runs on the embedded HyperPod cluster, end to end: the digits example as jobs of pods."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench.deployed_stack import Stack, open_stack
from muster import Muster
from muster.contract.run.result import Verdict
from muster.local.hyperpod.cluster_settings import ClusterSettings

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
    with open_stack(ClusterSettings(nodes=3, node_type="ml.m5.xlarge")) as stack:
        yield stack


@pytest.fixture
def muster(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Muster:
    for name, value in stack.cloud.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    return Muster()


def test_a_single_replica_trains_on_the_cluster(muster: Muster) -> None:
    run = muster.launch({**SPEC, "name": "single", "replicas": 1})
    run.wait(240, lambda _: None, 0.2)
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED, result.reason
    [replica] = result.replicas
    assert replica.round == 5


def test_two_replicas_end_with_the_same_bytes(muster: Muster) -> None:
    run = muster.launch({**SPEC, "name": "pair", "replicas": 2})
    run.wait(240, lambda _: None, 0.2)
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED, result.reason
    assert result.parameters_identical
    assert len({replica.checksum for replica in result.replicas}) == 1
