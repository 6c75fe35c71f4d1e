"""From the former protocol's arguments to a spec, and the executor's own attributes."""

from __future__ import annotations

import functools
import inspect
import json
import pickle
from typing import Any, cast

import pytest

import muster
from muster import client
from muster.client.errors import PickledSessionError
from muster.client.sdk import Muster, Run
from muster.contract.errors import MusterError, SpecError
from muster.contract.names import RUN_MAX
from muster.contract.spec.own_loop import OWN_LOOP
from muster.executor import GpuError, HandleError, MusterExecutor, ReplicaHandle
from muster.executor.handle import run_of
from muster.executor.launching import instance_type_of, launch_spec

FIELDS = {"replicas": 2}
FORMER_ARGUMENTS = [
    "role_arn",
    "image_uri",
    "output_s3_path",
    "instance_type",
    "cpu_instance_type",
    "volume_size_gb",
    "run_id",
    "region",
    "sagemaker_client",
    "logs_client",
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
    assert sent == {
        "name": "digits",
        "replicas": 2,
        "trainer": "m:train",
        "kwargs": {},
        "role_arn": values["role_arn"],
        "image": "image:1",
        "instance_type": "ml.m5.xlarge",
        "volume_gb": 50,
        "output_data_config": {"s3_output_path": "s3://bucket/output"},
        "max_runtime_seconds": 60,
    }
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
    assert first == {
        "run": "digits",
        "training_job_name": "muster-digits-r0-a1",
        "stack": "Mine",
        "region": "eu-north-1",
    }
    passed = [ReplicaHandle(**json.loads(json.dumps(vars(handle)))) for handle in handles]
    assert passed == pickle.loads(pickle.dumps(handles)) == handles == again  # noqa: S301 - our own
    assert len({*handles, *passed, *again}) == 2
    assert handles[0] != handles[1]


@pytest.mark.parametrize(
    ("metadata", "run"),
    [
        ({"run": "digits"}, "digits"),
        ({"training_job_name": "muster-digits-7-r0-a2"}, "digits-7"),
        # Of the former executor, and of another stack.
        ({"training_job_name": "diloco-0a1b2c3d-r0000-1700000000", "submit_ts": 1.0}, None),
        ({"training_job_name": "other-digits-r0-a1"}, None),
        ({}, None),
    ],
)
def test_a_handle_names_its_run_itself_or_by_one_of_its_jobs(metadata: dict[str, Any], run: str | None) -> None:
    handle = ReplicaHandle(0, "sagemaker", metadata)
    if run is not None:
        assert run_of(handle, lambda: "muster") == run
        return
    with pytest.raises(HandleError, match="names no run of Muster: pass a handle that"):
        run_of(handle, lambda: "muster")


def train() -> None: ...


@pytest.mark.parametrize(
    ("entrypoint", "arguments", "trainer"),
    [
        ("ignored", {"trainer_module": "m", "trainer_fn": "fit"}, "m:fit"),
        ("ignored", {"trainer_module": "m", "rank_env": "RANK", "another": 1}, "m:train"),
        ("package.m:fit", {}, "package.m:fit"),
        (train, {}, f"{__name__}:train"),
    ],
)
def test_the_trainer_is_that_of_the_arguments_or_the_entrypoint(
    entrypoint: Any, arguments: dict[str, Any], trainer: str
) -> None:
    assert launch_spec(FIELDS, entrypoint, arguments).trainer == trainer


def test_with_a_rendezvous_uri_the_trainer_brings_its_own_loop_in_one_process() -> None:
    arguments = {"trainer_module": "m", "trainer_kwargs": {"lr": 0.1}, "rendezvous_uri": "s3://bucket/meeting"}
    spec = launch_spec(FIELDS, "ignored", arguments)
    assert (spec.trainer, spec.kwargs) == (OWN_LOOP, {"trainer": "m:train", "kwargs": {"lr": 0.1}})
    assert (spec.processes, spec.environment) == (1, {})
    assert launch_spec({**FIELDS, "processes": 2}, "ignored", arguments).processes == 2
    # Muster's own trainers need none.
    assert launch_spec(FIELDS, "ignored", {**arguments, "rendezvous_uri": ""}).trainer == "m:train"


@pytest.mark.parametrize("uri", [None, "s3://bucket/meeting"])
@pytest.mark.parametrize(
    ("fields", "entrypoint", "kwargs", "problem"),
    [
        ({"replicas": 0}, "m:train", {}, "replicas: found 0"),
        (FIELDS, "ignored", {}, "trainer: found 'ignored'"),
        (FIELDS, lambda: None, {}, "trainer: found 'tests.unit.executor.test_launching:<lambda>'"),
        (FIELDS, functools.partial(train), {}, "trainer: found"),
        (FIELDS, None, {}, "trainer: found 'None'"),
        (FIELDS, "m:train", {"when": object()}, "kwargs"),
    ],
)
def test_what_the_former_executor_refused_is_a_value_error_with_every_problem(
    fields: dict[str, Any], entrypoint: Any, kwargs: dict[str, Any], problem: str, uri: str | None
) -> None:
    arguments = {"rendezvous_uri": uri, "trainer_kwargs": kwargs}
    with pytest.raises(ValueError, match="The spec has 1 problem; nothing was created") as found:
        launch_spec(fields, entrypoint, arguments)
    assert isinstance(found.value, SpecError)
    assert problem in str(found.value)


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
    assert issubclass(GpuError, ValueError)
    assert issubclass(HandleError, ValueError)
    assert issubclass(muster.SpecError, ValueError)
    for kind in (muster.ClientError, muster.RunNameTakenError):
        assert issubclass(kind, RuntimeError)
        assert issubclass(kind, MusterError)


def test_every_error_that_a_caller_handles_can_be_imported_from_the_client() -> None:
    in_replicas = {name for name in muster.__all__ if muster._HOMES.get(name) == "muster.replica.errors"}
    errors = {name for name in muster.__all__ if name.endswith("Error")} - in_replicas
    assert {*client.__all__} == errors
    assert {getattr(client, name) for name in errors} == {getattr(muster, name) for name in errors}


def test_an_executor_can_be_compared_shown_and_pickled() -> None:
    executor = MusterExecutor(run_id="digits", stack="Mine", region="eu-north-1", spec={"spot": True})
    copy = pickle.loads(pickle.dumps(executor))  # noqa: S301 - our own
    assert copy == executor
    assert hash(copy) == hash(executor)
    assert repr(copy) == "MusterExecutor(run_id='digits', muster=Muster('Mine', region='eu-north-1'))"
    assert copy != MusterExecutor(run_id="digits", stack="Mine", region="eu-north-1")
    # What is shown in a notebook is the stack's runs, or why they cannot be shown.
    assert "MusterExecutor" not in cast("str", executor._muster._repr_html_.__doc__)


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
    with pytest.raises(PickledSessionError, match="with a boto3 session or with clients"):
        pickle.dumps(executor)


def test_a_recipe_is_left_to_the_launch() -> None:
    fields = {**FIELDS, "recipe": {"file": "mine.yaml", "kwargs": "training_config"}}
    assert launch_spec(fields, "m:train", {"trainer_kwargs": {"lr": 0.1}}) == {
        **fields,
        "trainer": "m:train",
        "kwargs": {"lr": 0.1},
    }
    with pytest.raises(SpecError, match="recipe: set for a trainer that brings its own loop"):
        launch_spec(fields, "m:train", {"rendezvous_uri": "s3://bucket/meeting"})
