"""A replica of several processes as SageMaker sees it: real processes, on one instance and on two."""

from __future__ import annotations

import json
import os
import re
import signal
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
LAUNCHERS = ["torch", "plain"]
# Starting PyTorch takes seconds: with it only what differs with it.
plain = pytest.mark.parametrize("job", ["plain"], indirect=True)


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
        out, error = process.communicate(timeout=120)
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


@pytest.fixture(params=LAUNCHERS)
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
        assert place["agent"] == ("job-of-the-test" if job.launcher == "torch" else None)
    assert len({place["MASTER_PORT"] for place in found.values()}) == 1
    # One claim for the whole group.
    assert {tuple(place["seat"]) for place in found.values()} == {(1, 1)}
    assert "[0.2] to standard error, without an end of line\n" in out
    assert not (job.root / "algo-1" / "output" / "failure").exists()
    assert (job.root / "algo-1" / "output" / "data" / "manifest.json").exists()


@plain
def test_a_failure_of_one_ends_all_and_is_the_reason(job: Job) -> None:
    job.start("fail_in", count="3", process=1)
    code, out, _ = job.ended()
    assert code == ReplicaExit.USER_CODE, out
    assert job.failure() == f"process 1: {TRAINERS}:fail_in failed: LookupError: no data for process 1"
    assert len(job.files("*-pid")) == 3
    assert job.alive() == []


def test_a_process_that_a_signal_kills_is_the_reason_and_not_what_its_peers_say(job: Job) -> None:
    job.start("die_in", process=1)
    code, out, _ = job.ended()
    assert code == ReplicaExit.KILLED, out
    assert job.failure() == "process 1 was killed by SIGKILL"


@plain
def test_a_process_that_hangs_is_killed_when_another_one_has_failed(job: Job) -> None:
    job.start("hang_in", process=1)
    code, out, _ = job.ended()
    assert code == ReplicaExit.USER_CODE, out
    assert job.failure().endswith("RuntimeError: the first one fails")
    assert job.alive() == []


@plain
def test_a_process_that_never_returns_is_named_and_ended(job: Job) -> None:
    job.start("return_but", process=1)
    code, out, _ = job.ended()
    assert code == ReplicaExit.USER_CODE, out
    assert job.failure() == "process 1 is hung: it is still in the trainer 1 s after process 0 has returned from it"
    assert job.alive() == []


@plain
def test_a_launcher_that_is_killed_takes_its_processes_with_it(job: Job) -> None:
    job.start("save_on_stop")
    wait_until("both processes train", lambda: len(job.files("*-pid")) == 2, seconds=60)
    job.processes[0].kill()
    wait_until("the end of both", lambda: not job.alive(), seconds=60)


def test_sigterm_reaches_every_process_and_all_have_time_to_save(job: Job) -> None:
    job.start("save_on_stop", count="3")
    wait_until("all processes train", lambda: len(job.files("*-pid")) == 3, seconds=60)
    job.processes[0].send_signal(signal.SIGTERM)
    code, out, _ = job.ended()
    assert code == ReplicaExit.STOPPED, out
    assert len(job.files("*-saved")) == 3
    assert job.failure().startswith("[saved] process ")


@plain
def test_a_process_that_does_not_stop_is_killed_before_sagemaker_does(job: Job) -> None:
    job.start("ignore_stop", process=0)
    wait_until("both processes train", lambda: len(job.files("*-pid")) == 2, seconds=60)
    job.processes[0].send_signal(signal.SIGTERM)
    wait_until("the other one saves", lambda: len(job.files("1-saved")) == 1, seconds=60)
    code, out, _ = job.ended()
    assert code == ReplicaExit.KILLED, out
    assert job.failure() == "process 0 was killed: it still ran 2 s after SIGTERM"
    assert job.alive() == []


@plain
def test_two_instances_are_one_group(two_instances: Job) -> None:
    job = two_instances
    job.start("tell")
    ends = [job.ended(instance) for instance in range(2)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    found = [told(out) for _, out, _ in ends]
    assert [set(one) for one in found] == [{"0", "1"}, {"2", "3"}]
    for name, place in (found[0] | found[1]).items():
        assert place["group"] == [int(name), 4, int(name) % 2]
        assert (place["RANK"], place["LOCAL_RANK"], place["WORLD_SIZE"]) == (name, str(int(name) % 2), "4")
        assert place["MASTER_ADDR"] == job.hosts[0]
    assert len({tuple(place["seat"]) for place in (found[0] | found[1]).values()}) == 1


@plain
def test_a_failure_on_one_instance_ends_the_other_one_too(two_instances: Job) -> None:
    job = two_instances
    job.start("fail_in", process=3)
    ends = [job.ended(instance) for instance in range(2)]
    assert [code for code, _, _ in ends] == [1, 1], ends
    reason = f"process 3 on {job.hosts[1]}: {TRAINERS}:fail_in failed: LookupError: no data for process 3"
    assert [job.failure(instance) for instance in range(2)] == [reason, reason]
    assert job.alive() == []


@plain
def test_an_instance_that_loses_the_first_one_ends(two_instances: Job) -> None:
    job = two_instances
    job.start("save_on_stop")
    wait_until("all processes train", lambda: len(job.files("*-pid")) == 4, seconds=60)
    job.processes[0].kill()
    code, out, _ = job.ended(1)
    assert code == ReplicaExit.RENDEZVOUS, out
    assert re.match(
        r"\[rendezvous\] The replica's first instance \(127[\d.]+:29411\) cannot be reached", job.failure(1)
    )
    assert job.alive() == []


@pytest.mark.parametrize("job", ["torch"], indirect=True)
def test_torch_reduces_over_the_group_of_two_instances(two_instances: Job) -> None:
    job = two_instances
    job.start("add_up")
    ends = [job.ended(instance) for instance in range(2)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [line for _, out, _ in ends for line in sorted(out.splitlines()) if " sum=" in line] == [
        f"[0.{rank}] sum=10" for rank in range(4)
    ]
