"""Each defect of the former SageMakerExecutor, by its number: a test that an executor with the defect fails.

Where a defect shows in a run's life alone (3, 8, 10, 13), tests/e2e/test_executor.py holds it on the whole stack.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import boto3
import pytest

from muster import Muster
from muster.client.aws.cloud import Cloud
from muster.client.errors import BusyError, DeniedError, RefusedError, UnknownRunError
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaState, ReplicaStatus, RunStatus
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.executor import GpuError, MusterExecutor, ReplicaHandle
from muster.executor.replica_result import result_of
from muster.local.faults import CallError
from tests.support.client_stack import deploy
from tests.support.workshop import Workshop, own_calls, turn_to

TRAINER = "package.module:train"
LONG = "x" * 100_000


@pytest.fixture
def stack(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stack whose runs only wait, and this process turned to it."""
    turn_to(monkeypatch, workshop.cloud)
    return deploy(workshop)


def asked(stack: str, handle: ReplicaHandle) -> dict[str, Any]:
    """What the run of a handle was started with."""
    return dict(json.loads(Cloud(stack, boto3.Session()).executions.input_of(handle.metadata["run"])))


def settled(failure: FailureClass | None, reason: str, **changes: Any) -> tuple[RunStatus, Result]:
    """A run of one replica whose one attempt has ended."""
    job = {"attempt": 1, "job": "muster-a-r0-a1", "status": "Stopped"}
    replica = ReplicaStatus(rank=0, ends=(failure,), **job)
    status = RunStatus(run="a", state=RunState.FAILED, started_at="", replicas=(replica,))
    attempt = Attempt(launched_at="", secondary="", failure_class=failure, reason=reason, **job)
    outcome = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(attempt,), **changes)
    result = Result(run="a", verdict=Verdict.FAILED, reason="lost", settled_at="", replicas=(outcome,), reruns=0)
    return status, result


def test_1_a_trainers_arguments_are_no_arguments_of_the_job(stack: str) -> None:
    executor = MusterExecutor(stack=stack)
    (handle,) = executor.launch_replicas(1, "ignored", {"trainer_module": "m", "trainer_kwargs": {"text": LONG}})
    assert (asked(stack, handle)["kwargs"], asked(stack, handle)["trainer"]) == ({"text": LONG}, "m:train")
    with pytest.raises(SpecError, match="at most 260,000: keep data in S3"):
        executor.launch_replicas(1, TRAINER, {"trainer_kwargs": {"text": LONG * 3}})


@pytest.mark.parametrize("run", [RunState.RUNNING, RunState.STOPPING])
def test_2_stopping_is_no_end(run: RunState) -> None:
    stopping = ReplicaStatus(rank=0, attempt=1, status="Stopping", secondary="Stopping")
    assert stopping.state_in(run) is ReplicaState.RUNNING
    assert stopping.model_copy(update={"status": "Completed"}).state_in(run) is ReplicaState.SUCCEEDED


def test_4_a_limit_of_time_is_a_failure_with_its_reason() -> None:
    told = result_of(0, *settled(FailureClass.TIMEOUT, "MaxRuntimeExceeded"))
    assert (told["status"], told["error"], told["exit_code"]) == ("failed", "timeout: MaxRuntimeExceeded", None)


def test_5_an_invalid_request_is_no_missing_run_and_no_cancel(stack: str, faults: Any) -> None:
    executor = MusterExecutor(stack=stack)
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    invalid = {"service": "states", "code": "ValidationException", "status": 400}
    faults.add(CallError(operation="DescribeExecution", **invalid))
    with pytest.raises(RefusedError, match="ValidationException"):
        executor.poll(handle)
    faults.add(CallError(operation="StopExecution", **invalid))
    with pytest.raises(RefusedError, match="ValidationException"):
        executor.cancel(handle)
    faults.add(CallError(operation="StopExecution", service="states", code="AccessDeniedException", status=400))
    with pytest.raises(DeniedError):
        executor.cancel(handle)
    assert executor.poll(handle) == "pending"
    executor.cancel(handle)
    executor.cancel(handle)
    assert executor.poll(handle) == "cancelled"
    with pytest.raises(UnknownRunError):
        executor.cancel(ReplicaHandle(0, "muster", {"run": "nobody"}))


def test_6_long_and_foreign_names_keep_ranks_and_runs_apart(stack: str) -> None:
    names = [f"team/Übung {'x' * 80} {number}" for number in range(2)]
    handles = [MusterExecutor(run_id=name, stack=stack).launch_replicas(3, TRAINER, {}) for name in names]
    jobs = {str(JobName("muster", one.metadata["run"], one.rank, 1)) for run in handles for one in run}
    assert len(jobs) == 6
    assert max(map(len, jobs)) <= 63


def test_7_a_launch_whose_answer_is_lost_is_launched_once(stack: str, faults: Any) -> None:
    lost = faults.add(CallError(service="states", operation="StartExecution", after_effect=True, count=1))
    first = MusterExecutor(stack=stack).launch_replicas(2, TRAINER, {})
    again = MusterExecutor(stack=stack, run_id="again")
    assert again.launch_replicas(2, TRAINER, {}) == again.launch_replicas(2, TRAINER, {})
    assert sorted(run.run for run in Muster(stack).list()) == sorted(["again", first[0].metadata["run"]])
    assert lost.fired == 1


def test_8_handles_survive_json_and_pickle_and_a_later_launch(stack: str) -> None:
    executor = MusterExecutor(stack=stack)
    handles = executor.launch_replicas(2, TRAINER, {})
    other = executor.launch_replicas(2, TRAINER, {})
    executor.cancel(other[0])
    passed = [ReplicaHandle(**json.loads(json.dumps(vars(handle)))) for handle in handles]
    assert passed == pickle.loads(pickle.dumps(handles)) == handles  # noqa: S301 - our own
    # Another executor, which knows nothing: the first run goes on, the second was stopped.
    anybody = MusterExecutor(stack=stack)
    results = anybody.collect([passed[1], other[1], passed[0]], timeout=0)
    assert [(result["rank"], result["status"]) for result in results] == [
        (1, "pending"),
        (1, "cancelled"),
        (0, "pending"),
    ]


def test_9_launching_is_one_call_and_its_problems_differ(stack: str, workshop: Workshop, faults: Any) -> None:
    executor = MusterExecutor(stack=stack)
    workshop.cloud.calls.reset()
    executor.launch_replicas(500, TRAINER, {})
    assert own_calls(workshop.cloud) == {"DescribeStacks": 1, "StartExecution": 1}
    faults.add(CallError(service="states", operation="StartExecution", code="ThrottlingException", status=400, count=3))
    with pytest.raises(BusyError, match="ThrottlingException"):
        executor.launch_replicas(2, TRAINER, {})
    taken = MusterExecutor(stack=stack, run_id="taken")
    taken.launch_replicas(2, TRAINER, {})
    with pytest.raises(RunNameTakenError):
        taken.launch_replicas(3, TRAINER, {})
    # No quota is no end: the replica's next attempt waits for it.
    waiting = ReplicaStatus(rank=0, attempt=0, waiting_for=FailureClass.QUOTA)
    assert waiting.state_in(RunState.RUNNING) is ReplicaState.PENDING


def test_10_collecting_looks_at_all_replicas_together(stack: str, workshop: Workshop) -> None:
    executor = MusterExecutor(stack=stack)
    handles = executor.launch_replicas(300, TRAINER, {})
    workshop.cloud.calls.reset()
    results = executor.collect(handles, timeout=0)
    assert [result["rank"] for result in results] == list(range(300))
    assert own_calls(workshop.cloud).total() <= 6


def test_11_an_unknown_gpu_is_refused(stack: str) -> None:
    executor = MusterExecutor(stack=stack, instance_type="ml.g5.2xlarge")
    with pytest.raises(GpuError, match="gpu: found 'A1000'; choose A100"):
        executor.launch_replicas(1, TRAINER, {}, gpu="A1000")
    types = {None: "ml.g5.2xlarge", "H100": "ml.p5.48xlarge", "ml.trn1.2xlarge": "ml.trn1.2xlarge"}
    for gpu, wanted in types.items():
        (handle,) = executor.launch_replicas(1, TRAINER, {}, gpu=gpu)
        assert asked(stack, handle)["instance_type"] == wanted


def test_12_the_environment_holds_nothing_that_torch_reads(stack: str) -> None:
    for arguments in ({"trainer_module": "m"}, {"trainer_module": "m", "rendezvous_uri": "s3://bucket/meeting"}):
        (handle,) = MusterExecutor(stack=stack).launch_replicas(1, "ignored", arguments)
        assert "environment" not in asked(stack, handle)


def test_13_exit_codes_are_reported_or_none_and_every_field_of_a_job_can_be_set(stack: str) -> None:
    words = "AlgorithmError: ExecuteUserScriptError, exit code: 137"
    assert result_of(0, *settled(FailureClass.USER_CODE, words))["exit_code"] == 137
    told = result_of(
        0, *settled(FailureClass.USER_CODE, "AlgorithmError: no word", artifacts="s3://bucket/model.tar.gz")
    )
    # Of a job that failed there may be no archive.
    assert (told["exit_code"], told["result"]) == (None, None)
    fields: dict[str, Any] = {
        "tags": {"team": "research"},
        "spot": True,
        "volume_kms_key_id": "alias/volumes",
        "vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
        "output_data_config": {"kms_key_id": "alias/models"},
    }
    executor = MusterExecutor(stack=stack, spec=fields, output_s3_path="s3://bucket/output", volume_size_gb=50)
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    output = {"kms_key_id": "alias/models", "s3_output_path": "s3://bucket/output"}
    document = asked(stack, handle)
    assert {name: document[name] for name in fields} == {**fields, "output_data_config": output}
    assert document["volume_gb"] == 50


def test_14_an_error_of_the_log_service_is_no_log(stack: str, faults: Any) -> None:
    executor = MusterExecutor(stack=stack)
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    assert executor.stream_logs(handle).startswith(
        f"[rank 0] job={handle.metadata['training_job_name']}: no CloudWatch"
    )
    faults.add(CallError(service="logs", operation="FilterLogEvents", code="AccessDeniedException", status=400))
    with pytest.raises(DeniedError, match="FilterLogEvents"):
        executor.stream_logs(handle)
