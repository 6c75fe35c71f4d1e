"""The ServerlessExecutor protocol against the deployed stack: one process launches, another one knows handles alone."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from typing import Any

import numpy as np
import pytest

from muster import Muster
from muster.executor import MusterExecutor, ReplicaHandle
from tests.support.cloud_processes import kill, of_job
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

# What another process does with handles that it was given as JSON.
OTHER = """
import json, sys
from muster.executor import MusterExecutor, ReplicaHandle
executor, handles = MusterExecutor(), [ReplicaHandle(**item) for item in json.loads(sys.argv[1])]
{statement}
print(json.dumps(answer))
"""


def elsewhere(stack: Deployed, handles: list[ReplicaHandle], statement: str) -> Any:
    passed = [{"rank": item.rank, "backend_name": item.backend_name, "metadata": item.metadata} for item in handles]
    program = OTHER.format(statement=f"answer = {statement}")
    answer = subprocess.run(
        [sys.executable, "-c", program, json.dumps(passed)],
        env=stack.cloud.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.fixture
def turned(stack: Deployed, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """The stack, and this process turned to it."""
    turn_to(monkeypatch, stack.cloud)
    return stack


def test_two_processes_see_the_same_replicas_to_their_end(turned: Deployed) -> None:
    executor = MusterExecutor(run_id="team/digits run 7")
    trainer = {"rounds": 2, "fail_after": 9, "gate": str(turned.gates / "executor")}
    arguments = {"trainer_module": "tests.support.jobs.resuming", "trainer_kwargs": trainer}
    handles = executor.launch_replicas(2, "ignored", arguments, timeout=600)
    # A launch whose answer was lost is the same run, and takes nothing away from the first handles.
    assert executor.launch_replicas(2, "ignored", arguments, timeout=600) == handles
    assert [handle.rank for handle in handles] == [0, 1]
    at_once = elsewhere(turned, handles, "executor.collect(handles, timeout=0)")
    assert [(result["rank"], result["exit_code"]) for result in at_once] == [(0, None), (1, None)]
    turned.open_gate("executor")

    results = elsewhere(turned, handles[::-1], "executor.collect(handles)")
    assert [(result["rank"], result["status"], result["exit_code"]) for result in results] == [
        (1, "succeeded", 0),
        (0, "succeeded", 0),
    ]
    for result in results:
        assert result["error"] is None
        assert result["result"].startswith("s3://")
        assert result["result"].endswith("/model/")
        assert result["training_job_name"].endswith(f"-r{result['rank']}-a1")
        assert result["round"] == 2
    assert elsewhere(turned, handles, "[executor.poll(handle) for handle in handles]") == ["succeeded"] * 2
    assert "event=done" in elsewhere(turned, handles, "executor.stream_logs(handles[1])")
    header, _ = executor.stream_logs(handles[0], n_lines=1).splitlines()
    assert header.startswith(f"[rank 0] job={handles[0].metadata['training_job_name']} stream=")
    # Ended is ended: cancelling is no error, and changes nothing.
    executor.cancel(handles[0])
    assert executor.poll(handles[0]) == "succeeded"


def test_a_run_that_is_continued_is_reported_to_its_end(turned: Deployed) -> None:
    executor = MusterExecutor(spec={"rerun": {"on": ["failed"], "max": 1}, **EACH_ENDS_ALONE})
    arguments = {"trainer_kwargs": {"rounds": 4, "fail_after": 2}}
    handles = executor.launch_replicas(2, "tests.support.jobs.resuming:train", arguments)
    continued_by = f"{handles[0].metadata['run']}-x2"
    for result in elsewhere(turned, handles, "executor.collect(handles)"):
        assert (result["status"], result["round"], continued_by in result["training_job_name"]) == (
            "succeeded",
            4,
            True,
        )
    logged = executor.stream_logs(handles[0], n_lines=10_000)
    assert "the data of round 3 is broken" in logged
    assert "event=done" in logged.splitlines()[-1]


OWN_LOOP = "tests.support.jobs.own_loop"


def former(rounds: int, pause: float) -> dict[str, Any]:
    """The arguments of a launch as callers of the former executor wrote them."""
    kwargs = {"rounds": rounds, "pause": pause}
    return {"rendezvous_uri": "s3://elsewhere/meeting", "trainer_module": OWN_LOOP, "trainer_kwargs": kwargs}


def committed(stack: Deployed, handle: ReplicaHandle) -> int:
    """How many rounds are committed."""
    prefix = f"rendezvous/{handle.metadata['run']}/commits/"
    return int(stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix=prefix)["KeyCount"])


def weights_in(stack: Deployed, archive: str) -> bytes:
    """The parameters that a trainer has left in its model.tar.gz."""
    body = stack.s3.get_object(Bucket=stack.bucket, Key=archive.split("/", 3)[3])["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archived:
        member = archived.extractfile("weights.npy")
        assert member is not None
        found: bytes = np.load(io.BytesIO(member.read())).tobytes()
        return found


def test_a_trainer_of_the_former_executor_ends_with_the_same_bytes_although_a_replica_is_killed(
    turned: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is killed counts as the user's error: most often its memory ran out.
    executor = MusterExecutor(spec={"reruns": {"user-code": {"max_reruns": 1, "delay_seconds": 0}}})
    handles = executor.launch_replicas(3, "ignored", former(rounds=6, pause=0.3), timeout=600)
    run = turned.run(str(handles[0].metadata["run"]))
    wait_until("the second round", lambda: committed(turned, handles[0]) >= 2)
    assert kill(of_job(turned.cloud, run.job(1))) > 0
    results = executor.collect(handles)
    assert [(result["status"], result["attempts"], result["round"]) for result in results] == [
        ("succeeded", 1, 6),
        ("succeeded", 2, 6),
        ("succeeded", 1, 6),
    ]
    assert [result["training_job_name"] for result in results] == [run.job(0), run.job(1, 2), run.job(2)]
    monkeypatch.setenv("REPLICA_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    expected = importlib.import_module(OWN_LOOP).expected(6, 3)
    assert {weights_in(turned, str(result["result"])) for result in results} == {expected}
    assert [bool(result["result"] and result["result"].endswith("/output/model.tar.gz")) for result in results] == [
        True
    ] * 3
    lines = executor.stream_logs(handles[1], n_lines=10_000).splitlines()
    headers = [line for line in lines if line.startswith("[rank 1] job=")]
    assert [header.split()[2] for header in headers] == [f"job={run.job(1)}", f"job={run.job(1, 2)}"]
    assert all(f" stream={run.job(1, number)}/algo-1-" in header for number, header in enumerate(headers, 1))
    place = f"[trainer] rank 1 of 3 at s3://{turned.bucket}/rendezvous/{run.name}/trainer"
    assert lines.count(place) == 2
    assert any("event=replayed" in line for line in lines)
    assert Muster().run(run.name).status().remarks == ()


def test_one_replica_is_cancelled_and_the_others_train_on(turned: Deployed) -> None:
    policy = {"on_replica_failure": "continue", "min_replicas": 2, "rendezvous": {"grace_seconds": 1.0}}
    executor = MusterExecutor(spec=policy)
    handles = executor.launch_replicas(3, "ignored", former(rounds=12, pause=0.3), timeout=600)
    wait_until("the second round", lambda: committed(turned, handles[0]) >= 2)
    executor.cancel(handles[2])
    (cancelled,) = executor.collect(handles[2:], timeout=120)
    assert (cancelled["status"], cancelled["exit_code"], cancelled["result"]) == ("cancelled", None, None)
    results = executor.collect(handles)
    assert [result["status"] for result in results] == ["succeeded", "succeeded", "cancelled"]
    assert weights_in(turned, str(results[0]["result"])) == weights_in(turned, str(results[1]["result"]))
