"""A replica of several processes as SageMaker sees it: real processes, on one instance and on two."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import RunDocument
from tests.support.waiting import wait_until

TRAINERS = "tests.support.jobs.group_trainers"
ROOT = Path(__file__).resolve().parents[3]
WITHOUT_TORCH = ROOT / "tests" / "support" / "jobs" / "without_torch"
# Starting PyTorch takes seconds: with it only what differs with it. What the launcher does with processes that fail,
# hang or are stopped is in test_launcher.py.
plain = pytest.mark.parametrize("job", ["plain"], indirect=True)
with_torch = pytest.mark.parametrize("job", ["torch"], indirect=True)


@dataclass
class Job:
    """The containers of one training job, each with a tree of its own."""

    root: Path
    launcher: str
    hosts: tuple[str, ...] = ("algo-1",)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, function: str, count: str = "2", **kwargs: Any) -> None:
        document = RunDocument(
            run="test",
            plan_digest="0",
            replicas=1,
            trainer=f"{TRAINERS}:{function}",
            kwargs=kwargs,
            rendezvous_uri=f"{(self.root / 'rendezvous').as_uri()}/",
            min_participants=1,
            grace_seconds=0.2,
            timeout_seconds=120.0,
        )
        (self.root / "document.json").write_bytes(document.to_json())
        for host in self.hosts:
            config = self.root / host / "input" / "config"
            config.mkdir(parents=True)
            listed = {"current_host": host, "hosts": list(self.hosts), "network_interface_name": "lo"}
            (config / "resourceconfig.json").write_text(json.dumps(listed))
            places = [ROOT] if self.launcher == "torch" else [WITHOUT_TORCH, ROOT]
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, places)),
                "MUSTER_DOCUMENT": (self.root / "document.json").as_uri(),
                "MUSTER_RUN": "test",
                "MUSTER_RANK": "0",
                "MUSTER_ATTEMPT": "1",
                "MUSTER_PROCESSES": count,
                "TRAINING_JOB_NAME": "job-of-the-test",
                "SAGEMAKER_BASE_DIR": str(self.root / host),
            }
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.jobs.impatient_launcher"],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def ended(self, instance: int = 0) -> tuple[int, str, str]:
        process = self.processes[instance]
        out, error = process.communicate(timeout=240)
        return process.returncode, out, error

    def failure(self, instance: int = 0) -> str:
        return (self.root / self.hosts[instance] / "output" / "failure").read_text()

    def files(self, pattern: str) -> list[Path]:
        return [path for host in self.hosts for path in sorted((self.root / host / "checkpoints").glob(pattern))]

    def alive(self) -> list[int]:
        return [pid for path in self.files("*-pid") if _is_alive(pid := int(path.read_text()))]


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    job = Job(tmp_path, request.param)
    yield job
    for process in job.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def two_instances(job: Job) -> Job:
    # Two addresses of the loopback interface, which no other test of this machine uses at the same time.
    block = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    job.hosts = (f"{block}.1", f"{block}.2")
    return job


def told(out: str) -> dict[str, dict[str, Any]]:
    lines = [re.fullmatch(r"\[0\.(\d+)\] (\{.*\})", line) for line in out.splitlines()]
    return {line[1]: json.loads(line[2]) for line in lines if line is not None}


@plain
def test_every_process_knows_its_place_and_writes_it_before_each_line(job: Job) -> None:
    job.start("tell", count="3")
    code, out, error = job.ended()
    assert code == ReplicaExit.DONE, out + error
    found = told(out)
    assert set(found) == {"0", "1", "2"}
    for name, place in found.items():
        assert place["RANK"] == place["LOCAL_RANK"] == name
        assert place["WORLD_SIZE"] == place["LOCAL_WORLD_SIZE"] == "3"
        assert place["group"] == [int(name), 3, int(name)]
        assert place["replica"] == [0, 1]
        assert place["agent"] is None
    assert len({place["MASTER_PORT"] for place in found.values()}) == 1
    # One claim for the whole group.
    assert {tuple(place["seat"]) for place in found.values()} == {(1, 1)}
    assert "[0.2] to standard error, without an end of line\n" in out
    assert not (job.root / "algo-1" / "output" / "failure").exists()
    assert (job.root / "algo-1" / "output" / "data" / "manifest.json").exists()


@plain
def test_the_error_of_a_trainer_is_the_reason_of_its_group(job: Job) -> None:
    job.start("fail_in", process=1)
    code, out, _ = job.ended()
    assert code == ReplicaExit.USER_CODE, out
    place = r"(\S*/)?group_trainers\.py:60"
    failure = rf"process 1: {re.escape(TRAINERS)}:fail_in failed: {place}: LookupError: no data for process 1"
    assert re.fullmatch(failure, job.failure())
    assert job.alive() == []


@with_torch
def test_torch_adds_up_over_the_two_instances_of_a_group(two_instances: Job) -> None:
    job = two_instances
    job.start("add_up", count="1")
    ends = [job.ended(instance) for instance in range(2)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    for rank, (_, out, _) in enumerate(ends):
        assert f"[0.{rank}] sum=3\n" in out
        place = told(out)[str(rank)]
        assert place["group"] == [rank, 2, 0]
        assert (place["RANK"], place["LOCAL_RANK"], place["WORLD_SIZE"]) == (str(rank), "0", "2")
        assert (place["MASTER_ADDR"], place["agent"]) == (job.hosts[0], "job-of-the-test")
        # One claim for both instances.
        assert place["seat"] == [1, 1]


@plain
def test_a_launcher_that_is_killed_takes_its_processes_and_the_other_instance_with_it(two_instances: Job) -> None:
    job = two_instances
    job.start("train_until_stop", count="1")
    wait_until("both processes train", lambda: len(job.files("*-pid")) == 2, seconds=60)
    job.processes[0].kill()
    code, out, _ = job.ended(1)
    assert code == ReplicaExit.RENDEZVOUS, out
    assert re.match(
        r"\[rendezvous\] The replica's first instance \(127[\d.]+:29411\) cannot be reached", job.failure(1)
    )
    wait_until("the end of both", lambda: not job.alive(), seconds=60)
