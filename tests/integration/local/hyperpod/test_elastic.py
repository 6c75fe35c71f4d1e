"""Elastic jobs: more pods when capacity comes, fewer when it goes."""

import json
from collections.abc import Iterator

import pytest

from muster.local.faults import LostNode
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from tests.support.hyperpod.cluster import PodCluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodCluster]:
    """A cluster of one node, whose lost nodes do not come back soon."""
    settings = ClusterSettings(nodes=1, node_seconds=0.2, replace_seconds=600)
    made = PodCluster(tmp_path_factory.mktemp("small"), settings)
    yield made
    made.close()


def world_sizes(cluster: PodCluster, name: str) -> list[str]:
    lines = cluster.log(name).splitlines()
    return [json.loads(line.removeprefix("[default0]:"))["WORLD_SIZE"] for line in lines if '"WORLD_SIZE"' in line]


def test_a_job_grows_when_a_node_comes_and_shrinks_when_one_is_lost(small: PodCluster) -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 2,
        "replicaIncrementStep": 1,
        "scalingTimeoutInSeconds": 20,
        "gracefulShutdownTimeoutInSeconds": 10,
        "faultyScaleDownTimeoutInSeconds": 1,
    }
    name = small.create("steps.py", "120", replicas=1, elastic=policy)
    small.wait(name, "Running")
    wait_until("the first world", lambda: world_sizes(small, name) == ["1"])
    small.cluster.nodes.join(1)
    wait_until("the larger world", lambda: world_sizes(small, name) == ["1", "2"])
    assert "signal SIGUSR1" in small.log(name)
    assert small.status(name)["elasticScalingStatus"]["targetReplicas"] == {"pod": 2}
    assert small.status(name)["restartCount"] == 0
    small.faults.add(LostNode(job=name, pod=1))
    wait_until("the smaller world", lambda: world_sizes(small, name) == ["1", "2", "1"])
    assert small.status(name)["restartCount"] == 1
    assert small.condition(name, "Running")
    small.remove(name)
