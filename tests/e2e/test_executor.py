"""The ServerlessExecutor protocol against the deployed stack: one process launches, another one knows handles alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from muster.client.errors import UnknownRunError
from muster.contract.errors import RunNameTakenError, SpecError
from muster.executor import GpuError, MusterExecutor, ReplicaHandle
from muster.executor.handle import HandleError
from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
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
    with pytest.raises(RunNameTakenError):
        executor.launch_replicas(3, "ignored", arguments, timeout=600)
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
    assert len(executor.stream_logs(handles[0], n_lines=1).splitlines()) == 1
    # Ended is ended: cancelling is no error, and changes nothing.
    executor.cancel(handles[0])
    assert executor.poll(handles[0]) == "succeeded"


def test_a_run_that_goes_on_as_another_one_is_told_to_its_end(turned: Deployed) -> None:
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


def test_a_failure_is_told_with_its_reason_and_no_code_is_made_up(turned: Deployed) -> None:
    handles = MusterExecutor().launch_replicas(
        1, "tests.support.jobs.resuming:train", {"trainer_kwargs": {"rounds": 9, "fail_after": 1}}
    )
    (result,) = elsewhere(turned, handles, "executor.collect(handles)")
    assert (result["status"], result["result"]) == ("failed", None)
    assert "user-code: AlgorithmError" in result["error"]
    assert "the data of round 2 is broken" in result["error"]
    assert result["exit_code"] in {1, None}


def test_another_process_cancels(turned: Deployed) -> None:
    executor = MusterExecutor()
    handles = executor.launch_replicas(
        2, "tests.support.jobs.resuming:train", {"trainer_kwargs": {"rounds": 9**9, "fail_after": 9**9}}
    )
    run = turned.run(str(handles[0].metadata["run"]))
    run.wait_for_status(1, 1, "Training")
    assert elsewhere(turned, handles, "[executor.cancel(handle) for handle in handles]") == [None, None]
    results = executor.collect(handles)
    assert {result["status"] for result in results} == {"cancelled"}
    assert all(result["error"] for result in results)


def test_what_is_wrong_is_said_before_anything_is_created(turned: Deployed) -> None:
    executor = MusterExecutor()
    with pytest.raises(GpuError, match="gpu: found 'A1000'; choose A100"):
        executor.launch_replicas(1, "package.module:train", {}, gpu="A1000")
    with pytest.raises(SpecError, match="replicas: found 0"):
        executor.launch_replicas(0, "package.module:train", {})
    with pytest.raises(UnknownRunError):
        executor.poll(ReplicaHandle(0, "muster", {"run": "nobody"}))
    with pytest.raises(HandleError):
        executor.poll(ReplicaHandle(0, "modal", {}))
    assert turned.calls("StartExecution") == 0
