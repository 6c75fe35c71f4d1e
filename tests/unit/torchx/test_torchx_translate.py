"""A TorchX application as a spec: its command in a shell, its options, its failure policy; the states of replicas."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaStatus
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.options.torchx.client.application_spec import (
    TAG_ROLE,
    Application,
    Mount,
    OptionsError,
    document_of,
    new_run_name,
)
from muster.options.torchx.client.command import (
    ARGUMENT_MAX,
    RANK,
    SHELL,
    CommandError,
    LongCommandError,
    of_one_node,
    shell_arguments,
)
from muster.options.torchx.client.options import FORMER, REFUSED
from tests.support.torchx_options import OPTIONS

ECHO = (sys.executable, "-c", "import os, sys; print(repr(sys.argv[1:]), repr(os.environ.get('SAID')))")


def spec(options: dict[str, Any] | None = None, further: dict[str, Any] | None = None, **changes: Any) -> Spec:
    values: dict[str, Any] = {
        "name": "app",
        "role": "node",
        "image": "",
        "entrypoint": "true",
        "arguments": (),
        "replicas": 4,
    }
    return parse_spec(document_of("app-1", Application(**values | changes), options or {}, further or {}))


def said(command: tuple[str, ...], exported: dict[str, str]) -> str:
    arguments = shell_arguments(command, exported)
    assert all(1 <= len(argument) <= ARGUMENT_MAX and "\n" not in argument for argument in arguments)
    answer = subprocess.run(
        [*SHELL, *arguments], env={"MUSTER_RANK": "7"}, capture_output=True, text=True, check=True, timeout=60
    )
    return answer.stdout.strip()


def test_a_command_and_its_variables_reach_the_program_as_they_were_written() -> None:
    words = ["", "it's", '"$HOME" `id` $(id)', "two\nlines\n", " \t ", "x" * 3_000, "é\\n"]
    value = f"rank {RANK}\n" + "y" * 600
    assert said((*ECHO, *words, f"--rank={RANK}"), {"SAID": value}) == (
        f"{[*words, '--rank=7']!r} {value.replace(RANK, '7')!r}"
    )
    # The shell sets the values that the service cannot hold.
    made = spec(environment={"SAID": value, "PLAIN": "text"})
    assert (made.environment, "export SAID=" in "".join(made.arguments)) == ({"PLAIN": "text"}, True)


def test_a_command_that_is_too_long_is_refused_before_anything_is_created() -> None:
    with pytest.raises(LongCommandError, match="Put the command into a script"):
        spec(entrypoint="echo", arguments=("x" * 30_000,))


def test_torchrun_is_a_group_of_its_own_in_each_replica() -> None:
    for command, alone in (
        (
            "torchrun --rdzv_endpoint ${X:=localhost}:29500 --nnodes '1:4' --nproc_per_node 8 a.py",
            "torchrun --rdzv_endpoint localhost:0 --nnodes 1 --nproc_per_node 8 a.py",
        ),
        (
            '(python -m torch.distributed.run --rdzv-endpoint="$(hostname):1" --node-rank=3 --nnodes=4) && b',
            "(python -m torch.distributed.run --rdzv-endpoint=localhost:0 --node-rank=0 --nnodes=1) && b",
        ),
        ("launcher --nnodes 4", "launcher --nnodes 4"),
    ):
        assert of_one_node(["bash", "-c", command]) == ["bash", "-c", alone]
    words = "torchrun --nnodes 1:4 --rdzv-endpoint a:1 --node_rank 2 a.py --rank 2"
    alone = "torchrun --nnodes 1 --rdzv-endpoint localhost:0 --node_rank 0 a.py --rank 2"
    assert of_one_node(words.split()) == alone.split()


def test_every_former_option_is_there_under_its_name_and_refused_ones_say_what_to_do() -> None:
    assert [option.name for option in FORMER] == OPTIONS
    for option in sorted(REFUSED):
        with pytest.raises(OptionsError, match=f"^{option}: found"):
            spec({option: {"repo": "x"}})


def test_options_become_fields() -> None:
    role = "arn:aws:iam::123456789012:role/train"
    measured = {"metric_definitions": {"loss": "loss=([0-9.]+)"}, "hyperparameters": {"lr": "0.1"}}
    place = {
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "volume_size": 50,
        "model_uri": "s3://models/base",
    }
    limits = {"use_spot_instances": True, "max_wait": 90_000, "max_retry_attempts": 3}
    more = {"disable_output_compression": True, "container_log_level": 10, "environment": {"A": "1"}}
    options = {"role": role, "user": "ada", "tags": {"team": "research"}, **measured, **place, **limits, **more}
    further = {"rendezvous": {"grace_seconds": 5.0}, "environment": {"A": "0", "B": "2"}}
    made = spec(options, further, instance_type="ml.p3.2xlarge")
    document = made.model_dump(mode="json", exclude_unset=True)
    expected = {
        "role_arn": role,
        "tags": {"team": "research", "user": "ada", TAG_ROLE: "node"},
        "volume_gb": 50,
        "spot": True,
        "max_wait_seconds": 90_000,
        "vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
        "metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}],
        "hyper_parameters": {"lr": "0.1", "sagemaker_container_log_level": "10"},
        "retry_strategy": {"maximum_retry_attempts": 3},
        "output_data_config": {"compression_type": "NONE"},
        "environment": {"A": "1", "B": "2"},
        "rendezvous": {"grace_seconds": 5.0},
        "instance_type": "ml.p3.2xlarge",
    }
    assert {name: document[name] for name in expected} == expected
    assert document["input_data_config"][0]["channel_name"] == "model"
    assert spec({"role": "train"}).named_role == "train"
    # The source is that of the option, else that of the file, else the workspace.
    sources = ({"source_dir": "own"}, {"source_dir": "of-the-file"}), ({}, {"source_dir": "of-the-file"}), ({}, {})
    found = [spec(*given, source="/workspace").source_dir for given in sources]
    assert found == ["own", "of-the-file", "/workspace"]


def test_retries_and_replicas_map_onto_the_failure_policy() -> None:
    whole = spec(max_retries=2, min_replicas=4)
    policy = whole.continuation_policy
    assert policy is not None
    assert (policy.on, policy.max, whole.quorum, whole.reruns) == (["failed"], 2, 4, {})
    each = spec(max_retries=2, min_replicas=3, each_replica=True)
    assert (each.continuation_policy, each.quorum, each.on_replica_failure) == (None, 3, "continue")
    assert each.budget(FailureClass.USER_CODE).max_reruns == 2
    assert each.budget(FailureClass.SPOT).max_reruns == 20


def test_the_former_count_of_instances_is_the_count_of_replicas() -> None:
    assert spec({"instance_count": 8}, replicas=1).replicas == 8
    for options, further, told in (
        ({"instance_count": 8}, {}, "instance_count: found 8, but the component has 4 replicas"),
        ({"instance_count": -1}, {}, "instance_count: found -1; at least 1"),
        ({"model_channel_name": "weights"}, {}, "model_channel_name: found 'weights' without model_uri"),
        # Nothing can be added to these.
        ({"output_path": "s3://b/out"}, {"output_data_config": "s3://b"}, "spec: output_data_config: found text"),
        (
            {"metric_definitions": {"loss": "x"}},
            {"metric_definitions": {"loss": "x"}},
            "spec: metric_definitions: found",
        ),
        ({}, {"environment": {"SEED": 7}}, "spec: environment.SEED: found a whole number; write a string"),
    ):
        with pytest.raises(OptionsError, match=told):
            spec(options, further)


def test_a_checkpoint_prefix_is_exact_where_asked() -> None:
    asked = {"checkpoint_s3_uri": "s3://bucket/own"}
    exact = spec({**asked, "checkpoint_uri_exact": True}, replicas=1)
    assert exact.checkpoint_request("", "run", 0)["S3Uri"] == "s3://bucket/own"
    assert spec(asked, replicas=1).checkpoint_request("", "run", 0)["S3Uri"] == "s3://bucket/own/run/r0/"


def run_in_shell(made: Spec, path: Path, gpus: int = 2, **variables: str) -> list[str]:
    """What the program of the container prints: its variables where there is no GPU, and how it is started."""
    python = path / "python"
    python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo {gpus}; else [ {gpus} != 0 ] || env; echo "$@"; fi\n')
    python.chmod(0o755)
    command = [*(made.entrypoint or []), *made.arguments]
    environment = {"MUSTER_RANK": "7", "PATH": f"{path}:/usr/bin:/bin", **variables}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()


def test_a_script_under_torchrun_has_the_toolkits_variables(tmp_path: Path) -> None:
    data = tmp_path / "ml" / "input" / "data"
    (data / "my-data.v2").mkdir(parents=True)
    made = spec(entrypoint="", arguments=("train.py",))
    lines = run_in_shell(made, tmp_path, gpus=0, SAGEMAKER_BASE_DIR=f"{tmp_path}/ml")
    assert lines[-1] == "-m torch.distributed.run --standalone --nproc_per_node=1 train.py"
    expected = {f"SM_MODEL_DIR={tmp_path}/ml/model", f"SM_CHANNEL_MY_DATA_V2={data}/my-data.v2", "SM_NUM_GPUS=0"}
    assert expected <= set(lines)


LAUNCHED = "-m torch.distributed.run --standalone --nproc_per_node=2"


def test_a_script_runs_as_it_did(tmp_path: Path) -> None:
    parameters = {"hyperparameters": {"lr": "2", "n": "3"}}
    for entrypoint, arguments, options, expected in (
        ("", "train.py --lr 1", {}, f"{LAUNCHED} train.py --lr 1"),
        (" ", f"-m own.train --rank={RANK}", {}, f"{LAUNCHED} -m own.train --rank=7"),
        ("", "train.py", {"torchrun": False}, "train.py"),
        ("", "echo told", {}, "told"),
        ("python", "train.py --nnodes 4", {"torchrun": True}, f"{LAUNCHED} train.py --nnodes 4"),
        ("python", "-m own.train", {}, "-m own.train"),
        ("", "train.py --lr=1", parameters, f"{LAUNCHED} train.py --lr=1 --n 3"),
    ):
        made = spec(options, entrypoint=entrypoint, arguments=tuple(arguments.split()))
        assert run_in_shell(made, tmp_path) == [expected], (entrypoint, arguments, options)


def test_what_is_no_program_is_refused() -> None:
    for entrypoint, arguments, options, told in (
        ("", (), {}, "entrypoint: the role has neither an entrypoint nor arguments"),
        ("bash", ("-c", "true"), {"torchrun": True}, "torchrun: found True, but the role runs 'bash -c'"),
        ("python", ("-c", "pass"), {"torchrun": True}, "torchrun: found True, but the role runs 'python -c'"),
    ):
        with pytest.raises(CommandError, match=told):
            spec(options, entrypoint=entrypoint, arguments=arguments)


def test_a_name_is_new_and_begins_as_it_was_asked() -> None:
    first, second = new_run_name("my_training app", None), new_run_name("app", "x" * 80)
    assert first.startswith("my-training-app-")
    # It leaves room for the number of a continuation.
    assert len(second) == 36
    assert new_run_name("app", None) != new_run_name("app", None)
    assert new_run_name("My-App", None, "hyperpod").startswith("my-app-")


def test_a_recipe_is_named_by_an_option_or_by_the_file_of_a_spec() -> None:
    application = Application("app", "node", "image", "run", (), 1)
    named = document_of("app-1", application, {"recipe": "mine.yaml"}, {"recipe": {"hub": {}}})
    assert named["recipe"] == "mine.yaml"
    assert document_of("app-1", application, {}, {"recipe": {"base": "x"}})["recipe"] == {"base": "x"}
    assert "recipe" not in document_of("app-1", application, {}, {})
    # The rest of the spec is checked where the recipe is not known yet.
    with pytest.raises(SpecError, match="spott: unknown field"):
        document_of("app-1", application, {"recipe": "mine.yaml"}, {"spott": True})


def test_values_are_set_by_their_paths_as_the_command_line_does_it() -> None:
    set_ = {"rendezvous.grace_seconds": "30", "replicas": "8", "tags.team": "b", "environment.A": "'1'", "spot": "true"}
    made = spec({"set": set_, "tags": {"team": "a"}}, {"rendezvous": {"grace_seconds": 5.0, "timeout_seconds": 60.0}})
    assert (made.rendezvous.grace_seconds, made.rendezvous.timeout_seconds) == (30, 60)
    assert (made.replicas, made.tags["team"], made.environment, made.spot) == (8, "b", {"A": "1"}, True)
    application = Application("app", "node", "image", "run", (), 1)
    changed = {"set": {"recipe.overrides.lr": "3e-4"}}
    assert document_of("app-1", application, changed, {"recipe": {"base": "x"}})["recipe"] == {
        "base": "x",
        "overrides": {"lr": 3e-4},
    }
    with pytest.raises(SpecError, match="spott: unknown field"):
        spec({"set": {"spott": "true"}})


CLUSTER = {"backend": "hyperpod", "cluster": "ml-cluster", "namespace": "team-a", "queue": "q", "spares": 1}


def test_the_options_of_a_cluster_become_its_section_and_mounts_its_volumes() -> None:
    mounts = (Mount("/data", claim="corpus", read_only=True), Mount("/scratch", host_path="/mnt/nvme"))
    made = spec(CLUSTER, {"hyperpod": {"service_account": "mine", "queue": "other"}}, mounts=mounts)
    assert made.hyperpod is not None
    section = made.hyperpod.model_dump(exclude_unset=True)
    assert section.pop("volumes") == [
        {"name": "mount-0", "mount_path": "/data", "read_only": True, "claim": "corpus"},
        {"name": "mount-1", "mount_path": "/scratch", "read_only": False, "host_path": "/mnt/nvme"},
    ]
    assert {"backend": made.backend.value, **section} == {**CLUSTER, "service_account": "mine"}
    with pytest.raises(OptionsError, match="mounts: found /data, /scratch; a training job"):
        spec(mounts=mounts)
    with pytest.raises(OptionsError, match="mounts: found the device /dev/x; on a cluster, mount volumes"):
        spec(CLUSTER, mounts=(Mount("/dev/x"),))


STATES: list[tuple[RunState, str | None, FailureClass | None, str]] = [
    (RunState.RUNNING, None, None, "pending"),
    (RunState.RUNNING, "InProgress", None, "running"),
    (RunState.RUNNING, "Completed", None, "succeeded"),
    (RunState.RUNNING, "Failed", FailureClass.INFRASTRUCTURE, "pending"),
    (RunState.RUNNING, "Stopping", None, "running"),
    (RunState.STOPPING, "Stopping", None, "running"),
    (RunState.FAILED, "Completed", None, "succeeded"),
    (RunState.FAILED, "Failed", FailureClass.USER_CODE, "failed"),
    (RunState.FAILED, "Stopped", FailureClass.STOPPED_BY_MUSTER, "cancelled"),
    (RunState.STOPPED, "Stopped", FailureClass.STOPPED_BY_USER, "cancelled"),
    (RunState.STOPPED, None, None, "cancelled"),
    # SageMaker stops a job at its time limit, and refuses one beyond a quota: nobody has cancelled them.
    (RunState.FAILED, "Stopped", FailureClass.TIMEOUT, "failed"),
    (RunState.FAILED, None, FailureClass.QUOTA, "failed"),
]


def test_a_replicas_end_is_told_alike_by_both() -> None:
    for run, status, cause, told in STATES:
        ends = () if cause is None else (cause,)
        replica = ReplicaStatus(rank=0, attempt=1, status=status, secondary="Training", ends=ends)
        assert replica.state_in(run) == told, (run, status, cause)
    for secondary in ("Starting", "Pending", "PreparingTraining", "Downloading"):
        replica = ReplicaStatus(rank=0, attempt=1, status="InProgress", secondary=secondary)
        assert replica.state_in(RunState.RUNNING) == "pending", secondary
