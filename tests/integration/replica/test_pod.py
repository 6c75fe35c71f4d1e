"""The first process of a pod and the agent's worker, as processes; the operator is the test."""

import hashlib
import json
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from muster.contract.exits import ReplicaExit
from muster.infra.deploy.bundle import build_replica_package
from muster.options.hyperpod.contract.pod_bootstrap import POD_COMMAND
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK, PodChannel
from tests.support.pods import JOB, ROOT, PodRun, address
from tests.support.s3_server import S3Server, s3_server

PROGRAM = ROOT / "tests" / "support" / "jobs" / "programs" / "pod_program.py"
Make = Callable[..., PodRun]
COMMAND = [sys.executable, *POD_COMMAND[1:]]
"""What the container of a pod runs."""


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as served:
        yield served


@pytest.fixture
def make(s3: S3Server, tmp_path: Path) -> Iterator[Make]:
    made: list[PodRun] = []

    def make_pod(*steps: str, number: int = 0, instances: int = 1, **fields: object) -> PodRun:
        pod = PodRun(tmp_path, s3, [sys.executable, str(PROGRAM), *steps], number, instances, **fields)  # type: ignore[arg-type]
        made.append(pod)
        return pod

    yield make_pod
    for pod in made:
        pod.kill()


def is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def shown(pod: PodRun) -> dict[str, Any]:
    """What `show` has printed; each line of the log says of which job it is."""
    line = next(line for line in pod.log.splitlines() if '"config"' in line)
    found: dict[str, Any] = json.loads(line.partition("] ")[2])
    return found


def test_a_pod_runs_its_program_and_leaves_what_a_training_job_leaves(make: Make, s3: S3Server) -> None:
    s3.put("data/train/a.csv", b"1,2")
    channel = PodChannel(name="train", uri="s3://bucket/data/train/")
    pod = make("say=hello", "show", "count", "output={}", channels=(channel,)).begin(COMMAND)
    pod.start()
    pod.is_in("completed")
    # All is stored when the operator first sees that the program has completed.
    with tarfile.open(fileobj=BytesIO(s3.body(f"output/digits/{JOB}/output/output.tar.gz"))) as tar:
        assert tar.getnames() == ["manifest.json"]
    with tarfile.open(fileobj=BytesIO(s3.body(f"output/digits/{JOB}/output/model.tar.gz"))) as tar:
        assert tar.getnames() == ["weights"]
    assert s3.body("checkpoints/digits/r0/count") == b"1"
    assert (pod.base / "input" / "data" / "train" / "a.csv").read_bytes() == b"1,2"
    assert json.loads((pod.base / "input" / "config" / "hyperparameters.json").read_text()) == {"lr": "0.1"}
    assert not pod.notices("end")
    failed: list[str] = []

    class FailsOnce(dict[str, int]):
        def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
            if key.startswith("notices/digits/end") and not failed:
                failed.append(key)
                self[key] = 1
                return 1
            return super().get(key, default)

    # The notice is written again after an error.
    s3.unavailable = FailsOnce()
    pod.call("/shutdown")
    assert pod.end() == 0
    assert failed
    (end,) = pod.notices("end")
    assert (end["exit_code"], end["reason"], end["pod"]) == (0, "", f"{JOB}-pod-0")
    assert len(pod.notices("start")) == 1
    # Each line says of which job it is; the agent's own rules read the program's lines without that.
    assert f"[{JOB}/0] hello\n" in pod.log
    (log,) = (pod.base / "muster-pod" / "logs").rglob("stdout.log")
    assert log.read_text().startswith("hello\n")
    found = shown(pod)
    assert found["config"]["hosts"] == [pod.address]
    assert (found["RANK"], found["TORCHELASTIC_RUN_ID"], found["MASTER_ADDR"]) == (None, None, None)
    assert found["TRAINING_JOB_NAME"] == JOB


def test_a_failure_is_the_agents_fault_and_the_notices_reason(make: Make) -> None:
    pod = make("checkpoint=5", "fail=trainer.py:3: ValueError: no data").begin()
    pod.start()
    pod.is_in("faulted")
    assert "ValueError: no data" in pod.call("/status")["message"]
    # The operator gives up: it deletes the pod.
    pod.terminate()
    assert pod.end() == 3
    (end,) = pod.notices("end")
    assert (end["exit_code"], end["reason"]) == (3, "trainer.py:3: ValueError: no data")


def test_a_restart_by_the_operator_continues_in_the_same_pod(make: Make, s3: S3Server) -> None:
    pod = make("count", "fail-first=no data").begin()
    pod.start()
    pod.is_in("faulted")
    pod.call("/stop", {})
    pod.start(faults=1)
    pod.is_in("completed")
    assert s3.body("checkpoints/digits/r0/count") == b"2"
    assert len(pod.notices("start")) == 2
    pod.call("/shutdown")
    assert pod.end() == 0
    # What the first start has said of its end is no reason of the pod's.
    assert [end["reason"] for end in pod.notices("end")] == [""]


def test_a_program_saves_before_the_number_of_pods_changes_and_before_its_pod_is_deleted(
    make: Make, s3: S3Server
) -> None:
    pod = make("wait").begin()
    pod.start()
    pod.runs()
    assert pod.call("/stop", {"is_graceful": True, "timeout": 60}) is not None
    pod.is_in("ready")
    assert s3.body("checkpoints/digits/r0/saved") == b"saved at SIGTERM"
    assert not pod.notices("end")
    for left in (pod.base / "ready", pod.base / "checkpoints" / "saved"):
        left.unlink()
    pod.start()
    pod.runs()
    pod.terminate()
    assert pod.end() == 143
    assert (pod.base / "checkpoints" / "saved").exists()
    (end,) = pod.notices("end")
    assert (end["exit_code"], end["reason"]) == (143, "[saved] The replica was asked to stop (SIGTERM).")


def test_all_pods_of_a_replica_have_the_same_hosts_and_the_first_one_stores(make: Make, s3: S3Server) -> None:
    pods = [make("show", "output={}", number=number, instances=2).begin() for number in range(2)]
    for rank, pod in enumerate(pods):
        # The operator's numbers of the pods are its own.
        pod.start(pods=2, rank=1 - rank, master=pods[1].address)
    for pod in pods:
        pod.is_in("completed")
    configs = [shown(pod)["config"] for pod in pods]
    assert [config["hosts"][0] for config in configs] == [address(1), address(1)]
    assert [config["current_host"] for config in configs] == [address(0), address(1)]
    assert s3.count("PUT", f"output/digits/{JOB}/output/output.tar.gz") == 1
    assert len(pods[0].notices("start")) == 1


def test_a_killed_worker_or_program_leaves_no_process_beside_the_next_one(make: Make, s3: S3Server) -> None:
    pod = make("count", "leave-child", "checkpoint=not copied yet", "kill-worker-first").begin()
    pod.start()
    pod.is_in("faulted")
    child = int((pod.base / "child").read_text())
    assert is_alive(child)
    pod.call("/stop", {})
    pod.start(faults=1)
    pod.is_in("faulted")
    assert not is_alive(child)
    child = int((pod.base / "child").read_text())
    pod.terminate()
    assert pod.end() == 137
    assert not is_alive(child)
    # The pod's first process has copied what the worker could not.
    assert s3.body("checkpoints/digits/r0/state") == b"not copied yet"
    assert s3.body("checkpoints/digits/r0/count") == b"2"


def test_a_pod_that_is_killed_while_it_restores_restores_everything_the_next_time(make: Make, s3: S3Server) -> None:
    for name in ("a", "b"):
        s3.put(f"checkpoints/digits/r0/{name}", name.encode() * 100)
    s3.put("checkpoints/digits/r0/count", b"4")
    s3.cut["checkpoints/digits/r0/b"] = [50]
    pod = make("count").begin()

    def killed_at_the_second_request() -> None:
        s3.before["GET", "checkpoints/digits/r0/b"] = pod.kill

    s3.before["GET", "checkpoints/digits/r0/b"] = killed_at_the_second_request
    pod.start()
    assert pod.end() == -signal.SIGKILL
    pod.begin()
    pod.start()
    pod.is_in("completed")
    assert (pod.base / "checkpoints" / "b").read_bytes() == b"b" * 100
    assert s3.body("checkpoints/digits/r0/count") == b"5"
    assert {key for key in s3.objects if key.startswith("checkpoints/")} == {
        f"checkpoints/digits/r0/{name}" for name in ("a", "b", "count")
    }


def test_sigterm_during_a_download_ends_the_pod_with_a_notice(make: Make, s3: S3Server) -> None:
    s3.put("data/a", b"1" * 10)
    s3.cut["data/a"] = [5]
    pod = make("count", channels=(PodChannel(name="train", uri="s3://bucket/data/"),))

    def stopped_at_the_second_request() -> None:
        def stop() -> None:
            pod.terminate()
            time.sleep(0.3)

        s3.before["GET", "data/a"] = stop

    s3.before["GET", "data/a"] = stopped_at_the_second_request
    assert pod.begin().end() == 143
    (end,) = pod.notices("end")
    assert end["reason"].startswith("[saved] The pod was asked to stop before its program was started")


def test_sigterm_before_the_operator_starts_the_program_ends_the_pod(make: Make) -> None:
    pod = make("count").begin()
    pod.is_in("ready")
    pod.terminate()
    assert pod.end() == 143
    (end,) = pod.notices("end")
    assert end["exit_code"] == 143


def test_an_unusable_input_ends_the_pod_and_says_why(make: Make, s3: S3Server) -> None:
    package = f"{'0' * 64}.zip"
    s3.put(f"packages/{package}", b"no zip")
    train = PodChannel(name="train", uri="s3://bucket/none/")
    damaged = PodChannel(name="muster-package", uri=f"s3://bucket/packages/{package}")
    pods = {
        ("the image has no hyperpodrun",): make("count", number=0, with_agent=False),
        ("the channel train is empty",): make("count", number=1, channels=(train,)),
        ("is damaged: its SHA-256 is",): make("count", number=2, channels=(damaged,)),
    }
    unusable = f"{hashlib.sha256(b'no zip').hexdigest()}.zip"
    s3.put(f"packages/{unusable}", b"no zip")
    package_channel = PodChannel(name="muster-package", uri=f"s3://bucket/packages/{unusable}")
    pods["SyntaxError",] = make("count", number=4, channels=(package_channel,))
    wrong = make("count", number=3)
    work = {"output_uri": "/results", "channels": [{"name": "a/b", "uri": "x"}]}
    wrong.variables[ENV_POD_WORK] = json.dumps(json.loads(wrong.work.to_json()) | work)
    pods[
        "output_uri: found '/results'; allowed: s3://bucket/prefix",
        "channels.0.uri: found 'x'",
        "channels.0.name: found 'a/b'; allowed: 1 to 64 letters",
    ] = wrong
    for words, pod in pods.items():
        assert pod.begin(COMMAND).end() == 64, words
        end = next(end for end in pod.notices("end") if end["pod"] == f"{JOB}-pod-{pod.number}")
        assert end["exit_code"] == 64, words
        assert end["reason"].startswith("[bad-input] "), words
        assert [word for word in words if word not in end["reason"]] == []
        assert "Traceback" not in pod.log, words


def test_a_pod_that_was_made_before_its_association_took_effect_leaves_its_package_to_the_next(make: Make) -> None:
    files = {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_CONFIG_FILE": "/nowhere"}
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true", **files}
    package = PodChannel(name="muster-package", uri="s3://bucket/packages/x.zip")
    pod = make("count", channels=(package,), variables=nobody).begin(COMMAND)
    assert pod.end() == ReplicaExit.RENDEZVOUS
    assert "x.zip cannot be fetched: NoCredentialsError: Unable to locate credentials" in pod.log


def test_the_containers_command_runs_an_image_with_python_and_boto3_alone(
    make: Make, s3: S3Server, tmp_path: Path
) -> None:
    package = build_replica_package(folder=tmp_path)
    name = f"{hashlib.sha256(package.read_bytes()).hexdigest()}.zip"
    s3.put(f"packages/{name}", package.read_bytes())
    pod = make("say=hello", channels=(PodChannel(name="muster-package", uri=f"s3://bucket/packages/{name}"),))
    pod.begin(COMMAND)
    pod.start()
    pod.is_in("completed")
    pod.call("/shutdown")
    assert pod.end() == 0
    assert f"[{JOB}/0] hello\n" in pod.log
    # The bootstrap's copy is the channel's.
    assert s3.count("GET", f"packages/{name}") == 2
