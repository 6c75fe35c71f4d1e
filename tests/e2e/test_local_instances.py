"""Jobs of several instances on the embedded cloud."""

from __future__ import annotations

import io
import json
import os
import tarfile
from typing import Any

from tests.support.waiting import wait_until
from tests.support.workshop import Workshop

LOG_GROUP = "/aws/sagemaker/TrainingJobs"


def resources(count: int) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}}


def lines(workshop: Workshop, job: str) -> dict[str, list[str]]:
    """What each container of the job has written, by host."""
    streams = workshop.logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/")["logStreams"]
    found: dict[str, list[str]] = {}
    for stream in streams:
        name = stream["logStreamName"]
        events = workshop.logs.get_log_events(logGroupName=LOG_GROUP, logStreamName=name)["events"]
        host = name.partition("/")[2].rpartition("-")[0]
        found[host] = [event["message"] for event in events]
    return found


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def test_instances_reach_each_other_by_name_and_leave_one_model(workshop: Workshop) -> None:
    shown = workshop.run("instances", "meet", **resources(3))
    job = shown["TrainingJobName"]
    assert shown["TrainingJobStatus"] == "Completed", shown.get("FailureReason")
    assert lines(workshop, job) == {"algo-1": [], "algo-2": ["hello algo-2"], "algo-3": ["hello algo-3"]}
    hosts = ["algo-1", "algo-2", "algo-3"]
    assert members(workshop.read(f"output/{job}/output/model.tar.gz")) == dict.fromkeys(hosts, b"weights")
    output = members(workshop.read(f"output/{job}/output/output.tar.gz"))
    configs = {name: json.loads(content) for name, content in output.items()}
    assert {name: config["current_host"] for name, config in configs.items()} == {
        f"{host}.json": host for host in hosts
    }
    assert all(config["hosts"] == hosts for config in configs.values())


def test_the_failure_of_one_instance_fails_the_job_at_once(workshop: Workshop) -> None:
    shown = workshop.run("instances", "fail", "algo-2", "7", **resources(2))
    assert shown["FailureReason"] == "AlgorithmError: algo-2 has no data, exit code: 7"
    pids = [int(line) for host in lines(workshop, shown["TrainingJobName"]).values() for line in host]
    assert all(not os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110 - a process, not a file


def test_a_stop_reaches_every_instance(workshop: Workshop) -> None:
    job = workshop.start("instances", "wait", **resources(2))
    wait_until("both containers", lambda: lines(workshop, job) == {"algo-1": ["up"], "algo-2": ["up"]})
    workshop.sagemaker.stop_training_job(TrainingJobName=job)
    assert workshop.end(job)["TrainingJobStatus"] == "Stopped"
    assert {host: found[-1] for host, found in lines(workshop, job).items()} == {
        host: f"stopped {host}" for host in ("algo-1", "algo-2")
    }


def test_containers_that_write_the_same_name_lose_their_model(workshop: Workshop) -> None:
    shown = workshop.run("instances", "clash", **resources(2))
    assert "two containers of the job have written weights" in shown["FailureReason"]
