"""The executor: from the former protocol's arguments to a spec, its handles, and single replicas of a run.

Tests with a number hold defects of the former SageMakerExecutor: each fails for an executor with the defect. Where one
shows in a run's life (3, 10, 13), tests/release/executor/test_executor.py holds it on the stack.
"""

import functools
import inspect
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import muster
from muster.client.client_errors import (
    BusyError,
    DeniedError,
    NoJobError,
    PickledSessionError,
    RefusedError,
    UnknownReplicaError,
    UnknownRunError,
)
from muster.client.logs.log_lines import LogLine
from muster.client.runs import cancellation
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaState, ReplicaStatus, RunStatus
from muster.client.sdk import Muster, Run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import canonical_json
from muster.contract.errors import MusterError, RunNameTakenError, SpecError
from muster.contract.names import RUN_MAX, JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.spec.hook import OWN_LOOP
from muster.contract.spec.spec_reader import parse_spec
from muster.control.plan import make_plan
from muster.executor import GpuError, HandleError, MusterExecutor, ReplicaHandle
from muster.options.executor.client.handle import run_of
from muster.options.executor.client.launching import instance_type_of, launch_spec
from muster.options.executor.client.muster_executor import can_do_without, log_text
from muster.options.executor.client.replica_result import result_of
from tests.memory import Fault, lost_answer, throttle
from tests.memory.calls import AwsError
from tests.memory.cloud import MemoryCloud
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.memory_client import muster_of

FIELDS = {"replicas": 2}
FORMER_ARGUMENTS = [
    *("role_arn", "image_uri", "output_s3_path", "instance_type", "cpu_instance_type", "volume_size_gb", "run_id"),
    *("region", "sagemaker_client", "logs_client"),
]


class Sent(Muster):
    """Keeps what is launched."""

    job_prefix = "muster"

    def __init__(self) -> None:
        super().__init__(region="eu-north-1")
        self.specs: list[dict[str, Any]] = []

    def launch(self, spec: Any) -> Run:
        self.specs.append(spec.model_dump(mode="json", exclude_unset=True))
        return Run(self, spec.name)


def launched(executor: MusterExecutor, *arguments: Any, **options: Any) -> tuple[dict[str, Any], list[ReplicaHandle]]:
    """The spec that a launch sends, and its handles."""
    executor._muster = sent = Sent()
    handles = executor.launch_replicas(*arguments, **options)
    return sent.specs[0], handles


def test_every_argument_of_the_former_constructor_is_taken_and_most_are_attributes() -> None:
    parameters = inspect.signature(MusterExecutor).parameters
    assert [name for name in parameters if name in FORMER_ARGUMENTS] == FORMER_ARGUMENTS
    assert {item.kind for item in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    values: dict[str, Any] = {
        "role_arn": "arn:aws:iam::123456789012:role/train",
        "image_uri": "image:1",
        "output_s3_path": "s3://bucket/output",
        "instance_type": "ml.g5.2xlarge",
        "cpu_instance_type": "ml.m5.xlarge",
        "volume_size_gb": 50,
        "run_id": "digits",
    }
    executor = MusterExecutor(**values)
    assert {name: getattr(executor, name) for name in values} == values
    assert (executor.backend_name, executor.supports_inter_replica_network) == ("muster", False)
    sent, _ = launched(executor, 2, "m:train", {}, timeout=60)
    own = {"role_arn": values["role_arn"], "image": "image:1", "instance_type": "ml.m5.xlarge", "volume_gb": 50}
    limits = {"output_data_config": {"s3_output_path": "s3://bucket/output"}, "max_runtime_seconds": 60}
    assert sent == {"name": "digits", "replicas": 2, "trainer": "m:train", "kwargs": {}, **own, **limits}
    executor.image_uri = "image:2"
    assert launched(executor, 1, "m:train", {})[0]["image"] == "image:2"


def test_without_a_run_id_every_launch_has_a_name_of_its_own_that_begins_with_a_random_one() -> None:
    executor, other = MusterExecutor(), MusterExecutor()
    assert executor.run_id != other.run_id
    names = [launched(executor, 1, "m:train", {})[0]["name"] for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith(f"{executor.run_id}-") and len(name) <= RUN_MAX for name in names)
    assert launched(MusterExecutor(spec={"name": "mine"}), 1, "m:train", {})[0]["name"] == "mine"
    assert launched(MusterExecutor(spec={"name": "mine"}, run_id="this"), 1, "m:train", {})[0]["name"] == "this"


def test_handles_name_the_job_and_the_time_and_are_equal_for_the_same_replica() -> None:
    executor = MusterExecutor(run_id="digits", stack="Mine", region="eu-north-1")
    _, handles = launched(executor, 2, "m:train", {})
    _, again = launched(executor, 2, "m:train", {})
    assert [handle.rank for handle in handles] == [0, 1]
    first = dict(handles[0].metadata)
    assert isinstance(first.pop("submit_ts"), float)
    place = {"stack": "Mine", "region": "eu-north-1"}
    assert first == {"run": "digits", "training_job_name": "muster-digits-r0-a1", **place}
    assert (handles == again, len({*handles, *again})) == (True, 2)


def test_a_handle_names_its_run_itself_or_by_one_of_its_jobs() -> None:
    for metadata, run in (
        ({"run": "digits"}, "digits"),
        ({"training_job_name": "muster-digits-7-r0-a2"}, "digits-7"),
    ):
        assert run_of(ReplicaHandle(0, "sagemaker", metadata), lambda: "muster") == run
    # Of the former executor, and of another stack.
    former = {"training_job_name": "diloco-0a1b2c3d-r0000-1700000000", "submit_ts": 1.0}
    for metadata in (former, {"training_job_name": "other-digits-r0-a1"}, {}):
        with pytest.raises(HandleError, match="names no run of Muster"):
            run_of(ReplicaHandle(0, "sagemaker", metadata), lambda: "muster")


def train() -> None: ...


def test_the_trainer_is_that_of_the_arguments_or_the_entrypoint() -> None:
    for entrypoint, arguments, trainer in (
        ("ignored", {"trainer_module": "m", "trainer_fn": "fit"}, "m:fit"),
        ("ignored", {"trainer_module": "m", "rank_env": "RANK", "another": 1}, "m:train"),
        ("package.m:fit", {}, "package.m:fit"),
        (train, {}, f"{__name__}:train"),
    ):
        assert launch_spec(FIELDS, entrypoint, arguments).trainer == trainer, (entrypoint, arguments)


def test_with_a_rendezvous_uri_the_trainer_brings_its_own_loop_in_one_process() -> None:
    arguments = {"trainer_module": "m", "trainer_kwargs": {"lr": 0.1}, "rendezvous_uri": "s3://bucket/meeting"}
    spec = launch_spec(FIELDS, "ignored", arguments)
    assert (spec.trainer, spec.kwargs) == (OWN_LOOP, {"trainer": "m:train", "kwargs": {"lr": 0.1}})
    assert (spec.processes, spec.environment) == (1, {})
    assert launch_spec({**FIELDS, "processes": 2}, "ignored", arguments).processes == 2
    # Muster's own trainers need none.
    assert launch_spec(FIELDS, "ignored", {**arguments, "rendezvous_uri": ""}).trainer == "m:train"


def test_what_the_former_executor_refused_is_a_value_error_with_every_problem() -> None:
    for fields, entrypoint, kwargs, problem in (
        ({"replicas": 0}, "m:train", {}, "replicas: found 0"),
        (FIELDS, "ignored", {}, "trainer: found 'ignored'"),
        (FIELDS, functools.partial(train), {}, "trainer: found"),
        (FIELDS, None, {}, "trainer: found 'None'"),
        (FIELDS, "m:train", {"when": object()}, "kwargs"),
    ):
        for uri in (None, "s3://bucket/meeting"):
            with pytest.raises(ValueError, match="has 1 problem") as found:
                launch_spec(fields, entrypoint, {"rendezvous_uri": uri, "trainer_kwargs": kwargs})
            assert (isinstance(found.value, SpecError), problem in str(found.value)) == (True, True), problem


def test_a_gpu_is_an_instance_type_or_one_of_seven_names() -> None:
    names = {"A100": "ml.p4d.24xlarge", "L4": "ml.g6.2xlarge", "ml.trn1.2xlarge": "ml.trn1.2xlarge"}
    assert {gpu: instance_type_of(gpu) for gpu in names} == names
    with pytest.raises(ValueError, match="gpu: found 'A1000'; choose A100"):
        instance_type_of("A1000")
    without_cpu_type = MusterExecutor(instance_type="ml.g5.2xlarge")
    assert launched(without_cpu_type, 1, "m:train", {})[0]["instance_type"] == "ml.g5.2xlarge"
    assert launched(without_cpu_type, 1, "m:train", {}, gpu="H100")[0]["instance_type"] == "ml.p5.48xlarge"
    assert "instance_type" not in launched(MusterExecutor(), 1, "m:train", {})[0]


def test_errors_are_those_that_the_former_executors_callers_catch() -> None:
    assert all(issubclass(kind, ValueError) for kind in (GpuError, HandleError, muster.SpecError))
    for kind in (muster.ClientError, muster.RunNameTakenError):
        assert issubclass(kind, RuntimeError)
        assert issubclass(kind, MusterError)


class Client:
    """A client of boto3, as far as an executor looks at one."""

    class meta:  # noqa: N801 - boto3's name
        region_name = "eu-north-1"


def test_given_clients_are_used_and_say_the_region() -> None:
    sagemaker, logs = Client(), Client()
    executor = MusterExecutor(sagemaker_client=sagemaker, logs_client=logs)
    connection = executor._muster._cloud.connection
    assert (connection.sagemaker, connection.logs) == (sagemaker, logs)
    assert connection.session.region_name == "eu-north-1"
    assert MusterExecutor(logs_client=logs, region="us-west-2")._muster._cloud.session.region_name == "us-west-2"
    with pytest.raises(PickledSessionError):
        pickle.dumps(executor)
    named = MusterExecutor(run_id="digits", stack="Mine", region="eu-north-1", spec={"spot": True})
    copy = pickle.loads(pickle.dumps(named))  # noqa: S301 - our own
    assert (copy, hash(copy)) == (named, hash(named))
    assert copy != MusterExecutor(run_id="digits", stack="Mine", region="eu-north-1")


def test_a_recipe_is_left_to_the_launch() -> None:
    fields = {**FIELDS, "recipe": {"file": "mine.yaml", "kwargs": "training_config"}}
    made = launch_spec(fields, "m:train", {"trainer_kwargs": {"lr": 0.1}})
    assert made == {**fields, "trainer": "m:train", "kwargs": {"lr": 0.1}}
    with pytest.raises(SpecError, match="recipe: set for a trainer that brings its own loop"):
        launch_spec(fields, "m:train", {"rendezvous_uri": "s3://bucket/meeting"})


TRAINER = "package.module:train"
LONG = "x" * 100_000


INVALID, DENIED = AwsError("ValidationException"), AwsError("AccessDeniedException")


@pytest.fixture
def cloud() -> MemoryCloud:
    return MemoryCloud()


@pytest.fixture
def executor(cloud: MemoryCloud) -> MusterExecutor:
    return executor_of(cloud)


def executor_of(cloud: MemoryCloud, **fields: Any) -> MusterExecutor:
    executor = MusterExecutor(region="us-east-1", **fields)
    executor._muster = muster_of(cloud)
    return executor


def asked(executor: MusterExecutor, handle: ReplicaHandle) -> dict[str, Any]:
    """What the run of a handle was started with."""
    return executor._muster.run(str(handle.metadata["run"])).spec()


def settled(failure: FailureClass | None, reason: str, **changes: Any) -> tuple[RunStatus, Result]:
    """A run of one replica whose one attempt has ended."""
    job = {"attempt": 1, "job": "muster-a-r0-a1", "status": "Stopped"}
    replica = ReplicaStatus(rank=0, ends=(failure,), **job)
    status = RunStatus(run="a", state=RunState.FAILED, started_at="", replicas=(replica,))
    attempt = Attempt(launched_at="", secondary="", failure_class=failure, reason=reason, **job)
    outcome = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(attempt,), **changes)
    result = Result(run="a", verdict=Verdict.FAILED, reason="lost", settled_at="", replicas=(outcome,), reruns=0)
    return status, result


def test_1_a_trainers_arguments_are_no_arguments_of_the_job(executor: MusterExecutor) -> None:
    (handle,) = executor.launch_replicas(1, "ignored", {"trainer_module": "m", "trainer_kwargs": {"text": LONG}})
    document = asked(executor, handle)
    assert (document["kwargs"], document["trainer"]) == ({"text": LONG}, "m:train")
    with pytest.raises(SpecError, match="at most 260,000"):
        executor.launch_replicas(1, TRAINER, {"trainer_kwargs": {"text": LONG * 3}})


def test_4_a_limit_of_time_is_a_failure_with_its_reason() -> None:
    told = result_of(0, *settled(FailureClass.TIMEOUT, "MaxRuntimeExceeded"))
    assert (told["status"], told["error"], told["exit_code"]) == ("failed", "timeout: MaxRuntimeExceeded", None)


def test_5_an_invalid_request_is_no_missing_run_and_no_cancel(cloud: MemoryCloud, executor: MusterExecutor) -> None:
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    cloud.calls.inject(Fault("DescribeExecution", INVALID))
    with pytest.raises(RefusedError, match="ValidationException"):
        executor.poll(handle)
    for refusal, error in ((INVALID, RefusedError), (DENIED, DeniedError)):
        cloud.calls.inject(Fault("StopExecution", refusal))
        with pytest.raises(error):
            executor.cancel(handle)
    assert executor.poll(handle) == "pending"
    executor.cancel(handle)
    executor.cancel(handle)
    assert executor.poll(handle) == "cancelled"
    for ask in (executor.poll, executor.cancel):
        with pytest.raises(UnknownRunError):
            ask(ReplicaHandle(0, "muster", {"run": "nobody"}))


def test_6_long_and_foreign_names_keep_ranks_and_runs_apart(cloud: MemoryCloud) -> None:
    names = [f"team/Übung {'x' * 80} {number}" for number in range(2)]
    handles = [executor_of(cloud, run_id=name).launch_replicas(3, TRAINER, {}) for name in names]
    jobs = {str(JobName("muster", str(one.metadata["run"]), one.rank, 1)) for run in handles for one in run}
    assert len(jobs) == 6
    assert max(map(len, jobs)) <= 63


def test_7_a_launch_whose_answer_is_lost_is_launched_once(cloud: MemoryCloud) -> None:
    again = executor_of(cloud, run_id="again")
    cloud.calls.inject(lost_answer("StartExecution"))
    with pytest.raises(BusyError):
        again.launch_replicas(2, TRAINER, {})
    assert again.launch_replicas(2, TRAINER, {}) == again.launch_replicas(2, TRAINER, {})
    assert [run.run for run in again._muster.list()] == ["again"]


def test_8_handles_survive_json_and_pickle_and_a_later_launch(cloud: MemoryCloud, executor: MusterExecutor) -> None:
    handles = executor.launch_replicas(2, TRAINER, {})
    other = executor.launch_replicas(2, TRAINER, {})
    executor.cancel(other[0])
    passed = [ReplicaHandle(**json.loads(json.dumps(vars(handle)))) for handle in handles]
    assert passed == pickle.loads(pickle.dumps(handles)) == handles  # noqa: S301 - our own
    # Another executor, which knows nothing: the first run goes on, the second was stopped.
    results = executor_of(cloud).collect([passed[1], other[1], passed[0]], timeout=0)
    assert [(result["rank"], result["status"]) for result in results] == [
        (1, "pending"),
        (1, "cancelled"),
        (0, "pending"),
    ]


def test_9_launching_is_one_call_and_its_problems_differ(cloud: MemoryCloud, executor: MusterExecutor) -> None:
    executor.launch_replicas(500, TRAINER, {})
    assert cloud.calls.counts() == {"StartExecution": 1}
    cloud.calls.inject(throttle("StartExecution"))
    with pytest.raises(BusyError, match="ThrottlingException"):
        executor.launch_replicas(2, TRAINER, {})
    taken = executor_of(cloud, run_id="taken")
    taken.launch_replicas(2, TRAINER, {})
    with pytest.raises(RunNameTakenError):
        taken.launch_replicas(3, TRAINER, {})
    # No quota is no end: the replica's next attempt waits for it.
    waiting = ReplicaStatus(rank=0, attempt=0, waiting_for=FailureClass.QUOTA)
    assert waiting.state_in(RunState.RUNNING) is ReplicaState.PENDING


def test_10_collecting_looks_at_all_replicas_together(cloud: MemoryCloud, executor: MusterExecutor) -> None:
    handles = executor.launch_replicas(300, TRAINER, {})
    cloud.calls.reset()
    results = executor.collect(handles, timeout=0)
    assert [result["rank"] for result in results] == list(range(300))
    assert cloud.calls.counts().total() <= 6


def test_13_exit_codes_are_reported_or_none_and_every_field_of_a_job_can_be_set(cloud: MemoryCloud) -> None:
    words = "AlgorithmError: ExecuteUserScriptError, exit code: 137"
    assert result_of(0, *settled(FailureClass.USER_CODE, words))["exit_code"] == 137
    failed = settled(FailureClass.USER_CODE, "AlgorithmError: no word", artifacts="s3://bucket/model.tar.gz")
    # Of a job that failed there may be no archive.
    assert (result_of(0, *failed)["exit_code"], result_of(0, *failed)["result"]) == (None, None)
    fields: dict[str, Any] = {
        "tags": {"team": "research"},
        "spot": True,
        "volume_kms_key_id": "alias/volumes",
        "vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
        "output_data_config": {"kms_key_id": "alias/models"},
    }
    executor = executor_of(cloud, spec=fields, output_s3_path="s3://bucket/output", volume_size_gb=50)
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    output = {"kms_key_id": "alias/models", "s3_output_path": "s3://bucket/output"}
    document = asked(executor, handle)
    assert {name: document[name] for name in fields} == {**fields, "output_data_config": output}
    assert document["volume_gb"] == 50


def test_14_an_error_of_the_log_service_is_no_log(cloud: MemoryCloud, executor: MusterExecutor) -> None:
    (handle,) = executor.launch_replicas(1, TRAINER, {})
    assert executor.stream_logs(handle).startswith(f"[rank 0] job={handle.metadata['training_job_name']}: no Cloud")
    cloud.calls.inject(Fault("FilterLogEvents", DENIED))
    with pytest.raises(DeniedError, match="FilterLogEvents"):
        executor.stream_logs(handle)


GOES_ON = {"replicas": 3, "on_replica_failure": "continue", "min_replicas": 2}


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def started(harness: ControlHarness, *armed: int, **fields: Any) -> tuple[MusterExecutor, list[ReplicaHandle]]:
    """A run whose ranks `armed` have jobs that train, an executor that knows it, and its handles."""
    spec = {**SPEC, **fields}
    harness.executions.start(RUN, canonical_json(spec).decode())
    make_plan(harness.plane, harness.deployment, harness.plan_request(**fields))
    for rank in armed:
        harness.arm(rank)
        harness.cloud.training.train(harness.job(rank))
    harness.deliver()
    return executor_of(harness.cloud), [ReplicaHandle(rank, "muster", {"run": RUN}) for rank in range(spec["replicas"])]


def stopped_jobs(harness: ControlHarness) -> list[str]:
    return harness.cloud.training.names("Stopping", "Stopped")


def test_a_replica_is_cancelled_alone_if_the_run_can_do_without_it(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, 2, **GOES_ON)
    executor.cancel(handles[1])
    assert stopped_jobs(harness) == [harness.job(1)]
    assert executor.poll(handles[1]) == "running"
    harness.cloud.training.end_stopped(harness.job(1))
    harness.deliver()
    assert harness.record(1).current.failure_class is FailureClass.STOPPED_BY_USER
    # At once, although the run continues: another attempt does not follow.
    assert [executor.poll(handle) for handle in handles] == ["running", "cancelled", "running"]
    (result,) = executor.collect([handles[1]])
    assert (result["status"], result["exit_code"], result["training_job_name"]) == ("cancelled", None, harness.job(1))
    assert str(result["error"]).startswith("stopped-by-user")
    executor.cancel(handles[1])
    assert harness.cloud.workflow.status(RUN) == "RUNNING"
    # A second one is one too many: the run ends as a whole.
    executor.cancel(handles[2])
    assert harness.cloud.workflow.status(RUN) == "ABORTED"


def test_the_run_is_stopped_if_it_needs_the_replica(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, replicas=2)
    executor.cancel(handles[1])
    assert harness.cloud.workflow.status(RUN) == "ABORTED"


def test_cancelling_a_replica_that_has_ended_changes_nothing(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, replicas=2)
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    executor.cancel(handles[0])
    assert harness.cloud.workflow.status(RUN) == "RUNNING"
    assert stopped_jobs(harness) == []
    assert executor.poll(handles[0]) == "succeeded"


def test_a_replica_that_has_no_job_is_waited_for_and_named(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, _ = started(harness, 0, 1, **GOES_ON)
    run = executor._muster.run(RUN)

    def launch(_: float) -> None:
        harness.arm(2)

    monkeypatch.setattr(cancellation.time, "sleep", launch)
    assert run.cancel_replica(2) == harness.job(2)
    assert stopped_jobs(harness) == [harness.job(2)]
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    assert run.cancel_replica(0) is None
    with pytest.raises(UnknownReplicaError, match=r"The run one has no replica 3: it has the replicas 0 to 2"):
        run.cancel_replica(3)


def test_a_replica_that_waits_for_its_next_attempt_is_an_error(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, handles = started(harness, 0, 1, **GOES_ON)
    monkeypatch.setattr(cancellation, "_LAUNCH_SECONDS", 0.0)
    monkeypatch.setattr(cancellation.time, "sleep", lambda _: None)
    with pytest.raises(
        NoJobError, match=r"Replica 2 of the run one had no running training job .* `muster cancel one`"
    ):
        executor.cancel(handles[2])
    assert stopped_jobs(harness) == []


def replica(rank: int, status: str = "InProgress", **fields: Any) -> ReplicaStatus:
    return ReplicaStatus(rank=rank, attempt=1, job=f"j{rank}", status=status, secondary="Training", **fields)


def test_a_run_can_do_without_a_replica_while_enough_others_can_succeed() -> None:
    two = {"min_replicas": 2}
    for others, fields, can in (
        ([replica(1), replica(2)], two, True),
        ([replica(1), replica(2)], {}, False),
        ([replica(1), replica(2)], {"on_replica_failure": "terminate"}, False),
        ([replica(1, "Stopping"), replica(2)], two, False),
        ([replica(1, "Failed", rerun_follows=False), replica(2)], two, False),
        ([replica(1, "Failed", rerun_follows=True), replica(2)], two, True),
        ([replica(1, "Completed", rerun_follows=False), replica(2)], two, True),
    ):
        spec = parse_spec({"replicas": 3, "trainer": "m:f", "on_replica_failure": "continue", **fields})
        status = RunStatus(run="a", state=RunState.RUNNING, started_at="", replicas=(replica(0), *others))
        assert can_do_without(spec, status, 0) is can, (others, fields)
    rerun = replica(0, "Stopped", ends=(FailureClass.STOPPED_BY_USER,), rerun_follows=True)
    assert (rerun.is_cancelled, rerun.state_in(RunState.RUNNING)) == (False, ReplicaState.PENDING)


def line(attempt: int, message: str) -> LogLine:
    job = f"muster-a-r0-a{attempt}"
    return LogLine(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        rank=0,
        attempt=attempt,
        job=job,
        stream=f"{job}/algo-1-17",
        message=message,
    )


def test_each_jobs_lines_are_below_a_line_with_the_job_and_its_stream() -> None:
    assert log_text(0, "muster-a-r0-a2", [line(1, "loss=2"), line(1, "killed"), line(2, "loss=1")]).splitlines() == [
        "[rank 0] job=muster-a-r0-a1 stream=muster-a-r0-a1/algo-1-17",
        "loss=2",
        "killed",
        "[rank 0] job=muster-a-r0-a2 stream=muster-a-r0-a2/algo-1-17",
        "loss=1",
    ]
    assert log_text(0, "muster-a-r0-a1", []).startswith("[rank 0] job=muster-a-r0-a1: no CloudWatch log stream yet (")
