"""A TorchX application as a spec: its command under a real shell, its options, its failure policy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.torchx.application_spec import (
    TAG_ROLE,
    Application,
    Mount,
    OptionsError,
    document_of,
    new_run_name,
    spec_of,
)
from muster.torchx.command import (
    ARGUMENT_MAX,
    RANK,
    SHELL,
    CommandError,
    LongCommandError,
    of_one_node,
    shell_arguments,
)
from muster.torchx.options import FORMER, REFUSED, Texts, Values
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
    return spec_of("app-1", Application(**values | changes), options or {}, further or {})


def said(command: tuple[str, ...], exported: dict[str, str]) -> str:
    arguments = shell_arguments(command, exported)
    assert all(1 <= len(argument) <= ARGUMENT_MAX and "\n" not in argument for argument in arguments)
    answer = subprocess.run(
        [*SHELL, *arguments], env={"MUSTER_RANK": "7"}, capture_output=True, text=True, check=True, timeout=60
    )
    return answer.stdout.strip()


def test_a_command_reaches_the_program_as_it_was_written() -> None:
    words = ["", "it's", '"$HOME" `id` $(id)', "two\nlines\n", " \t ", "x" * 3_000, "é\\n"]
    assert said((*ECHO, *words, f"--rank={RANK}"), {}) == f"{[*words, '--rank=7']!r} None"


def test_values_that_the_service_cannot_hold_are_set_by_the_shell() -> None:
    value = f"rank {RANK}\n" + "y" * 600
    assert said(ECHO, {"SAID": value}) == f"[] {value.replace(RANK, '7')!r}"
    made = spec(environment={"SAID": value, "PLAIN": "text"})
    assert made.environment == {"PLAIN": "text"}
    assert "export SAID=" in "".join(made.arguments)


def test_a_command_that_is_too_long_is_refused_before_anything_is_created() -> None:
    with pytest.raises(LongCommandError, match="Put the command into a script"):
        spec(entrypoint="echo", arguments=("x" * 30_000,))


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        (
            "torchrun --rdzv_endpoint ${X:=localhost}:29500 --nnodes '1:4' --nproc_per_node 8 a.py",
            "torchrun --rdzv_endpoint localhost:0 --nnodes 1 --nproc_per_node 8 a.py",
        ),
        (
            '(python -m torch.distributed.run --rdzv-endpoint="$(hostname):1" --node-rank=3 --nnodes=4) && b',
            "(python -m torch.distributed.run --rdzv-endpoint=localhost:0 --node-rank=0 --nnodes=1) && b",
        ),
        ("launcher --nnodes 4", "launcher --nnodes 4"),
    ],
    ids=["dist.ddp", "other spellings", "another program"],
)
def test_torchrun_is_a_group_of_its_own_in_each_replica(command: str, alone: str) -> None:
    assert of_one_node(["bash", "-c", command]) == ["bash", "-c", alone]


def test_torchrun_is_told_word_by_word() -> None:
    command = ["torchrun", "--nnodes", "1:4", "--rdzv-endpoint", "a:1", "--node_rank", "2", "a.py", "--rank", "2"]
    alone = ["torchrun", "--nnodes", "1", "--rdzv-endpoint", "localhost:0", "--node_rank", "0", "a.py", "--rank", "2"]
    assert of_one_node(command) == alone


def test_every_former_option_is_there_under_its_name() -> None:
    assert [option.name for option in FORMER] == OPTIONS


def test_every_former_option_has_its_kind() -> None:
    # As in the former scheduler's documentation; what was a list of mappings there, which no command line could give,
    # is one mapping.
    kinds = {
        int: "instance_count keep_alive_period_in_seconds volume_size max_run max_wait max_retry_attempts "
        "container_log_level",
        bool: "encrypt_inter_container_traffic use_spot_instances debugger_hook_config enable_sagemaker_metrics "
        "enable_network_isolation disable_profiler disable_output_compression enable_infra_check quiet",
        Values: "tags metric_definitions environment git_config hyperparameters",
        Texts: "subnets security_group_ids dependencies",
    }
    expected = {name: kind for kind, names in kinds.items() for name in names.split()}
    assert {option.name: option.kind for option in FORMER} == {name: expected.get(name, str) for name in OPTIONS}


def test_options_become_fields() -> None:
    made = spec(
        {
            "role": "arn:aws:iam::123456789012:role/train",
            "user": "ada",
            "tags": {"team": "research"},
            "volume_size": 50,
            "use_spot_instances": True,
            "max_wait": 90_000,
            "subnets": ["subnet-1"],
            "security_group_ids": ["sg-1"],
            "model_uri": "s3://models/base",
            "metric_definitions": {"loss": "loss=([0-9.]+)"},
            "hyperparameters": {"lr": "0.1"},
            "container_log_level": 10,
            "max_retry_attempts": 3,
            "disable_output_compression": True,
            "environment": {"A": "1"},
        },
        {"rendezvous": {"grace_seconds": 5.0}, "environment": {"A": "0", "B": "2"}},
        instance_type="ml.p3.2xlarge",
    )
    document = made.model_dump(mode="json", exclude_unset=True)
    assert document["role_arn"] == "arn:aws:iam::123456789012:role/train"
    assert document["tags"] == {"team": "research", "user": "ada", TAG_ROLE: "node"}
    assert (made.volume_gb, made.spot, made.max_wait_seconds) == (50, True, 90_000)
    assert document["vpc_config"] == {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}
    assert document["input_data_config"][0]["channel_name"] == "model"
    assert document["metric_definitions"] == [{"name": "loss", "regex": "loss=([0-9.]+)"}]
    assert document["hyper_parameters"] == {"lr": "0.1", "sagemaker_container_log_level": "10"}
    assert document["retry_strategy"] == {"maximum_retry_attempts": 3}
    assert document["output_data_config"] == {"compression_type": "NONE"}
    assert (made.environment, made.rendezvous.grace_seconds) == ({"A": "1", "B": "2"}, 5.0)
    assert made.instance_type == "ml.p3.2xlarge"


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_muster_does_not_do_is_refused_with_what_to_do(option: str) -> None:
    with pytest.raises(OptionsError, match=f"^{option}: found .*; .*source_dir|--image"):
        spec({option: {"repo": "x"}})


@pytest.mark.parametrize(
    ("further", "told"),
    [
        ({"output_data_config": "s3://bucket"}, "spec: output_data_config: found text; write a mapping"),
        ({"tags": ["team"]}, r"spec: tags: found a list of 1 value; write a mapping"),
        ({"metric_definitions": {"loss": "x"}}, "spec: metric_definitions: found .*; write a list"),
        ({"environment": {"SEED": 7}}, "spec: environment.SEED: found a whole number; write a string, in quotes"),
    ],
)
def test_what_nothing_can_be_added_to_is_refused_by_name(further: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionsError, match=told):
        spec({"output_path": "s3://bucket/out", "metric_definitions": {"loss": "x"}}, further)


def test_what_is_left_empty_in_the_file_is_left_out() -> None:
    made = spec({"output_path": "s3://bucket/out"}, {"environment": None, "tags": None, "output_data_config": None})
    assert (made.environment, made.output_data_config.s3_output_path) == ({}, "s3://bucket/out")


def test_network_isolation_is_refused_by_the_spec() -> None:
    with pytest.raises(SpecError, match="enable_network_isolation"):
        spec({"enable_network_isolation": True})


def test_retries_and_replicas_map_onto_the_failure_policy() -> None:
    whole = spec(max_retries=2, min_replicas=4)
    assert whole.rerun is not None
    assert (whole.rerun.on, whole.rerun.max, whole.quorum, whole.reruns) == (["failed"], 2, 4, {})
    each = spec(max_retries=2, min_replicas=3, each_replica=True)
    assert (each.rerun, each.quorum, each.on_replica_failure) == (None, 3, "continue")
    assert each.budget(FailureClass.USER_CODE).max_reruns == 2
    assert each.budget(FailureClass.SPOT).max_reruns == 20


def test_the_former_count_of_instances_is_the_count_of_replicas() -> None:
    assert spec({"instance_count": 8}, replicas=1).replicas == 8
    with pytest.raises(OptionsError, match="instance_count: found 8, but the component has 4 replicas"):
        spec({"instance_count": 8})


@pytest.mark.parametrize("count", [0, -1])
def test_no_instance_is_none(count: int) -> None:
    with pytest.raises(OptionsError, match=f"instance_count: found {count}; at least 1"):
        spec({"instance_count": count}, replicas=1)


def test_a_channel_name_without_a_model_is_refused() -> None:
    with pytest.raises(OptionsError, match="model_channel_name: found 'weights' without model_uri"):
        spec({"model_channel_name": "weights"})


def test_a_checkpoint_prefix_is_exact_where_asked() -> None:
    asked = {"checkpoint_s3_uri": "s3://bucket/own"}
    exact = spec({**asked, "checkpoint_uri_exact": True}, replicas=1)
    assert exact.checkpoint_request("", "run", 0)["S3Uri"] == "s3://bucket/own"
    assert spec(asked, replicas=1).checkpoint_request("", "run", 0)["S3Uri"] == "s3://bucket/own/run/r0/"


def test_a_role_is_named_or_has_an_arn() -> None:
    assert spec({"role": "train"}).named_role == "train"


def run_in_shell(made: Spec, path: Path) -> list[str]:
    """What the program of the container is started with, in an environment of two GPUs."""
    python = path / "python"
    python.write_text('#!/bin/sh\nif [ "$1" = -c ]; then echo 2; else echo "$@"; fi\n')
    python.chmod(0o755)
    command = [*(made.entrypoint or []), *made.arguments]
    variables = {"MUSTER_RANK": "7", "PATH": f"{path}:/usr/bin:/bin"}
    answer = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60)
    return answer.stdout.split()


def test_a_script_under_torchrun_has_the_toolkits_variables(tmp_path: Path) -> None:
    for channel in ("train", "my-data.v2"):
        (tmp_path / "ml" / "input" / "data" / channel).mkdir(parents=True)
    (tmp_path / "python").write_text('#!/bin/sh\nif [ "$1" = -c ]; then echo 0; else env; echo "$@"; fi\n')
    (tmp_path / "python").chmod(0o755)
    made = spec(entrypoint="", arguments=("train.py",))
    variables = {"MUSTER_RANK": "7", "PATH": f"{tmp_path}:/usr/bin:/bin", "SAGEMAKER_BASE_DIR": f"{tmp_path}/ml"}
    answer = subprocess.run(
        [*(made.entrypoint or []), *made.arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = answer.stdout.splitlines()
    assert lines[-1] == "-m torch.distributed.run --standalone --nproc_per_node=1 train.py"
    assert {
        f"SM_MODEL_DIR={tmp_path}/ml/model",
        f"SM_OUTPUT_DATA_DIR={tmp_path}/ml/output/data",
        f"SM_CHANNEL_TRAIN={tmp_path}/ml/input/data/train",
        f"SM_CHANNEL_MY_DATA_V2={tmp_path}/ml/input/data/my-data.v2",
        "SM_NUM_GPUS=0",
    } <= set(lines)


LAUNCHED = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


@pytest.mark.parametrize(
    ("entrypoint", "arguments", "options", "expected"),
    [
        ("", ("train.py", "--lr", "1"), {}, [*LAUNCHED, "train.py", "--lr", "1"]),
        (" ", ("-m", "own.train", f"--rank={RANK}"), {}, [*LAUNCHED, "-m", "own.train", "--rank=7"]),
        ("", ("train.py",), {"torchrun": False}, ["train.py"]),
        ("", ("echo", "told"), {}, ["told"]),
        ("python", ("train.py", "--nnodes", "4"), {"torchrun": True}, [*LAUNCHED, "train.py", "--nnodes", "4"]),
        ("python", ("-m", "own.train"), {}, ["-m", "own.train"]),
        (
            "",
            ("train.py", "--lr=1"),
            {"hyperparameters": {"lr": "2", "n": "3"}},
            [*LAUNCHED, "train.py", "--lr=1", "--n", "3"],
        ),
    ],
    ids=["script", "module", "without torchrun", "program", "python with torchrun", "python", "hyperparameters"],
)
def test_a_script_runs_as_it_did(
    tmp_path: Path, entrypoint: str, arguments: tuple[str, ...], options: dict[str, Any], expected: list[str]
) -> None:
    assert run_in_shell(spec(options, entrypoint=entrypoint, arguments=arguments), tmp_path) == expected


@pytest.mark.parametrize(
    ("entrypoint", "arguments", "options", "told"),
    [
        ("", (), {}, "entrypoint: the role has neither an entrypoint nor arguments"),
        ("bash", ("-c", "true"), {"torchrun": True}, "torchrun: found True, but the role runs 'bash -c'"),
        ("python", ("-c", "pass"), {"torchrun": True}, "torchrun: found True, but the role runs 'python -c'"),
    ],
)
def test_what_is_no_program_is_refused(
    entrypoint: str, arguments: tuple[str, ...], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        spec(options, entrypoint=entrypoint, arguments=arguments)


def test_the_source_is_that_of_the_option_the_file_or_the_workspace() -> None:
    assert spec(source="/workspace").source_dir == "/workspace"
    assert spec({}, {"source_dir": "of-the-file"}, source="/workspace").source_dir == "of-the-file"
    assert spec({"source_dir": "own"}, {"source_dir": "of-the-file"}, source="/workspace").source_dir == "own"
    assert spec().source_dir is None


def test_a_name_is_new_and_begins_as_it_was_asked() -> None:
    first, second = new_run_name("my_training app", None), new_run_name("app", "x" * 80)
    assert first.startswith("my-training-app-")
    # It leaves room for the number of a continuation.
    assert len(second) == 36
    assert new_run_name("app", None) != new_run_name("app", None)


def test_a_recipe_is_named_by_an_option_or_by_the_file_of_a_spec() -> None:
    application = Application("app", "node", "image", "run", (), 1)
    named = document_of("app-1", application, {"recipe": "mine.yaml"}, {"recipe": {"hub": {}}})
    assert named["recipe"] == "mine.yaml"
    assert document_of("app-1", application, {}, {"recipe": {"base": "x"}})["recipe"] == {"base": "x"}
    assert "recipe" not in document_of("app-1", application, {}, {})
    # The rest of the spec is checked where the recipe is not known yet.
    with pytest.raises(SpecError, match="spott: unknown field"):
        document_of("app-1", application, {"recipe": "mine.yaml"}, {"spott": True})


CLUSTER = {"backend": "hyperpod", "cluster": "ml-cluster", "namespace": "team-a", "queue": "q", "spares": 1}


def test_the_options_of_a_cluster_become_its_section() -> None:
    made = spec({**CLUSTER, "priority": "high"}, {"hyperpod": {"service_account": "mine", "queue": "other"}})
    assert made.backend.value == "hyperpod"
    assert made.hyperpod is not None
    assert made.hyperpod.model_dump(exclude_unset=True) == {
        "cluster": "ml-cluster",
        "namespace": "team-a",
        "queue": "q",
        "spares": 1,
        "priority": "high",
        "service_account": "mine",
    }
    assert new_run_name("My-App", None, "hyperpod").startswith("my-app-")


def test_mounts_are_volumes_of_pods_and_refused_for_training_jobs() -> None:
    mounts = (Mount("/data", claim="corpus", read_only=True), Mount("/scratch", host_path="/mnt/nvme"))
    made = spec(CLUSTER, mounts=mounts)
    assert made.hyperpod is not None
    assert [volume.model_dump(exclude_unset=True) for volume in made.hyperpod.volumes] == [
        {"name": "mount-0", "mount_path": "/data", "read_only": True, "claim": "corpus"},
        {"name": "mount-1", "mount_path": "/scratch", "read_only": False, "host_path": "/mnt/nvme"},
    ]
    with pytest.raises(OptionsError, match=r"mounts: found /data, /scratch; a training job .* \(backend=hyperpod\)"):
        spec(mounts=mounts)
    with pytest.raises(OptionsError, match="mounts: found the device /dev/x; on a cluster, mount volumes"):
        spec(CLUSTER, mounts=(Mount("/dev/x"),))
