"""The lines of pods, merged with those of training jobs; and what is said where a cluster ships none."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.client_errors import NoClusterLogsError
from muster.client.logs.log_lines import LogLine, LogQuery
from muster.client.logs.log_reader import LogReader
from muster.contract import timestamps
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.cluster_job import ClusterJob
from muster.options.hyperpod.client.cluster_logs import ClusterLogs, missing_logs
from muster.options.hyperpod.contract.pod_log_lines import line_head, parse_line
from tests.memory.cloud import MemoryCloud
from tests.support.memory_client import client_of

JOB = "muster-digits-r{}-a1"
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def execution(clusters: dict[int, str], replicas: int = 4) -> Execution:
    return Execution("digits", ExecutionStatus.RUNNING, NOW, None, replicas, "", "", clusters=clusters)


@pytest.fixture
def cloud() -> Iterator[MemoryCloud]:
    cloud = MemoryCloud()
    cloud.hyperpod.ids = {"one": "abc1", "two": "abc2"}
    with cloud.clock.install():
        yield cloud


def reader(cloud: MemoryCloud, clusters: dict[int, str], ranks: set[int] | None = None) -> LogReader:
    client = client_of(cloud)
    return LogReader(
        client, LogQuery("muster", "digits", ranks), ClusterLogs.of_run(client, execution(clusters), ranks)
    )


def said(lines: Iterator[LogLine] | list[LogLine]) -> list[tuple[int, int | None, str]]:
    return [(line.rank, line.process, line.message) for line in lines]


def write(cloud: MemoryCloud, place: str | None, rank: int, text: str) -> None:
    job = JOB.format(rank)
    if place is None:
        cloud.logs.write(job, text)
    else:
        cloud.logs.write_of_pod(place, "hyperpod-i-0", f"{line_head(job, 0)}{text}\n")
    cloud.clock.advance(1)


def test_the_lines_of_training_jobs_and_of_two_clusters_are_one_log(cloud: MemoryCloud) -> None:
    for round_ in range(3):
        write(cloud, None, 0, f"round {round_}")
        write(cloud, "two/abc2", 2, f"[2.1] round {round_}")
        write(cloud, "one/abc1", 1, f"round {round_}")
    cloud.logs.write_of_pod("one/abc1", "hyperpod-i-1", f"{line_head('muster-other-r1-a1', 0)}of another run")
    found = said(reader(cloud, {1: "one", 2: "two"}).read_lines())
    assert found == [
        line for i in range(3) for line in ((0, None, f"round {i}"), (2, 1, f"round {i}"), (1, None, f"round {i}"))
    ]
    assert said(reader(cloud, {1: "one", 2: "two"}, {1}).last_lines(2, cloud.clock.now())) == [
        (1, None, "round 1"),
        (1, None, "round 2"),
    ]


def test_training_jobs_are_not_searched_for_the_lines_of_a_replica_on_a_cluster(cloud: MemoryCloud) -> None:
    write(cloud, None, 0, "of a training job")
    write(cloud, "one/abc1", 1, "of a pod")
    assert said(reader(cloud, {1: "one"}, {1}).read_lines()) == [(1, None, "of a pod")]
    assert said(reader(cloud, {1: "one"}, {0}).read_lines()) == [(0, None, "of a training job")]


def attempt(minutes: float, *, ended: bool = False, cluster: bool = True) -> Attempt:
    began = timestamps.text(NOW - timedelta(minutes=minutes))
    return Attempt(
        attempt=1,
        job=JOB.format(1),
        status="InProgress",
        history=(Transition(at=began, secondary="Training"),),
        ended_at=timestamps.text(NOW) if ended else None,
        cluster=ClusterJob(cluster="one", namespace="team-a") if cluster else None,
    )


def test_a_cluster_without_a_log_agent_is_named_once_a_line_should_have_come() -> None:
    for seen in (attempt(1), attempt(9, cluster=False)):
        assert missing_logs("digits", {1: [seen]}, [1], NOW) is None
    for seen in (attempt(3), attempt(1, ended=True)):
        error = str(missing_logs("digits", {1: [seen]}, [1], NOW))
        assert "from the cluster one" in error
        assert "kubectl logs --namespace team-a --selector muster/run=digits" in error


def test_the_error_comes_after_the_lines_of_the_others(cloud: MemoryCloud) -> None:
    write(cloud, None, 0, "of a training job")
    client = client_of(cloud)
    clusters = ClusterLogs.of_run(client, execution({1: "one"}), None)
    lines = LogReader(client, LogQuery("muster", "digits"), clusters, lambda: {1: [attempt(9)]}).read_lines()
    assert next(lines).message == "of a training job"
    with pytest.raises(NoClusterLogsError):
        next(lines)


def test_a_line_is_found_behind_a_time_and_inside_of_json() -> None:
    line = f"{line_head('muster-digits-r1-a2', 3)}loss=1"
    for message in (line, f"2026-11-22T12:00:00Z stdout F {line}\n", json.dumps({"log": f"{line}\n", "stream": "x"})):
        found = parse_line(message)
        assert found is not None
        assert found == ("muster-digits-r1-a2", "loss=1")
    for pod, is_own in (("muster-digits-r1-a2-pod-3", True), ("muster-other-r1-a2-pod-3", False), ("x", False)):
        found = parse_line(json.dumps({"log": line, "kubernetes": {"pod_name": pod}}))
        assert (found is not None) is is_own, pod
    for message in ("plain", "[1.2] text", "{", '{"log": 1}', "[UPPER/0] x"):
        assert parse_line(message) is None
