"""Every limit of CreateTrainingJob that a spec can meet: one value just inside, one just outside."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.spec.spec_reader import parse_spec
from tests.support.full_specs import channel, s3
from tests.support.job_requests import refusals, requests

BASE = {"replicas": 4, "image": "image:1"}
TRAINER = {"trainer": "package.module:train"}
PROGRAM = {"entrypoint": ["program"]}
VPC = {"vpc_config": {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]}}
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:"
MLFLOW = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/"


def channels(*listed: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"input_data_config": list(listed), **fields}


def files(**fields: Any) -> dict[str, Any]:
    source = {"file_system_id": "fs-01234567", "file_system_type": "EFS", "directory_path": "/data", **fields}
    return {"file_system_data_source": source}


def uri(length: int) -> str:
    return "s3://bucket/" + "k" * (length - len("s3://bucket/"))


def rule(**fields: Any) -> dict[str, Any]:
    return {"rule_configuration_name": "rule", "rule_evaluator_image": "image:1", **fields}


def rules(count: int) -> list[dict[str, Any]]:
    return [rule(rule_configuration_name=f"rule{index}") for index in range(count)]


def registry(arn: str, mode: str = "Vpc") -> dict[str, Any]:
    login = {"training_repository_credentials_provider_arn": arn}
    config = {"training_repository_access_mode": mode, "training_repository_auth_config": login}
    return {"training_image_config": config, **VPC}


def entries(count: int) -> dict[str, str]:
    return {f"key{index}": "value" for index in range(count)}


# The field that the error names; just inside; just outside.
LIMITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "overrides.0.keep_alive_period_in_seconds",
        {**TRAINER, "keep_alive_period_in_seconds": 60, "overrides": {"0": {"spot": False}}},
        {**TRAINER, "keep_alive_period_in_seconds": 60, "overrides": {"0": {"spot": True}}},
    ),
    (
        "max_wait_seconds",
        {**TRAINER, "max_wait_seconds": 90_000, "overrides": {"0": {"spot": True}}},
        {**TRAINER, "max_wait_seconds": 90_000, "overrides": {"0": {"spot": False}}},
    ),
    (
        "overrides.0.instance_preferences",
        {**TRAINER, "instance_preferences": [{"instance_type": "ml.m5.large"}], "overrides": {"0": {"spot": False}}},
        {**TRAINER, "instance_preferences": [{"instance_type": "ml.m5.large"}], "overrides": {"0": {"spot": True}}},
    ),
    ("rerun.max", {**TRAINER, "rerun": {"on": ["spot"], "max": 20}}, {**TRAINER, "rerun": {"on": ["spot"], "max": 21}}),
    ("rerun.max", {**TRAINER, "rerun": {"on": ["spot"], "max": 1}}, {**TRAINER, "rerun": {"on": ["spot"], "max": 0}}),
    ("rerun.on", {**TRAINER, "rerun": {"on": ["spot"], "max": 1}}, {**TRAINER, "rerun": {"on": [], "max": 1}}),
    (
        "rerun.on.0",
        {**TRAINER, "rerun": {"on": ["failed"], "max": 1}},
        {**TRAINER, "rerun": {"on": ["rain"], "max": 1}},
    ),
    ("resume_from", {**TRAINER, "resume_from": "r" * 34}, {**TRAINER, "resume_from": "r" * 41}),
    ("source_dir", {**TRAINER, "source_dir": "s3://b/c.tar.gz"}, {**TRAINER, "source_dir": "s3://b/c.zip"}),
    ("source_dir", {**TRAINER, "source_dir": "d" * 1_024}, {**TRAINER, "source_dir": "d" * 1_025}),
    (
        "entrypoint",
        {"source_dir": "code", "entrypoint": ["a"] * 96},
        {"source_dir": "code", "entrypoint": ["a"] * 97},
    ),
    (
        "input_data_config",
        {**PROGRAM, "source_dir": "code", **channels(*(channel(f"c{n}") for n in range(18)))},
        {**PROGRAM, "source_dir": "code", **channels(*(channel(f"c{n}") for n in range(19)))},
    ),
    (
        "input_data_config",
        {**PROGRAM, **channels(channel("muster-source"))},
        {**PROGRAM, "source_dir": "code", **channels(channel("muster-source"))},
    ),
    (
        "source_dir",
        {"image": None, "algorithm_name": "a"},
        {"image": None, "algorithm_name": "a", "source_dir": "code"},
    ),
    ("image", {"image": "i" * 255}, {"image": "i" * 256}),
    ("entrypoint", {"entrypoint": ["a"] * 100}, {"entrypoint": ["a"] * 101}),
    ("entrypoint", {"entrypoint": ["a"]}, {"entrypoint": []}),
    ("entrypoint.0", {"entrypoint": ["a" * 256]}, {"entrypoint": ["a" * 257]}),
    ("arguments", {**PROGRAM, "arguments": ["a"] * 100}, {**PROGRAM, "arguments": ["a"] * 101}),
    ("arguments.0", {**PROGRAM, "arguments": ["a" * 256]}, {**PROGRAM, "arguments": ["a" * 257]}),
    ("arguments.0", {**PROGRAM, "arguments": ["a\tb"]}, {**PROGRAM, "arguments": ["a\u2028b"]}),
    ("algorithm_name", {"image": None, "algorithm_name": "a" * 63}, {"image": None, "algorithm_name": "a" * 64}),
    ("algorithm_name", {"image": None, "algorithm_name": "a-a"}, {"image": None, "algorithm_name": "a-"}),
    ("algorithm_name", {"image": None, "algorithm_name": "a"}, {**PROGRAM, "algorithm_name": "a"}),
    (
        "training_image_config.training_repository_auth_config.training_repository_credentials_provider_arn",
        registry(LAMBDA + "f" * (2_048 - len(LAMBDA))),
        registry(LAMBDA + "f" * (2_049 - len(LAMBDA))),
    ),
    (
        "training_image_config.training_repository_access_mode",
        registry(LAMBDA + "f"),
        registry(LAMBDA + "f", mode="Platform"),
    ),
    (
        "training_image_config.training_repository_access_mode",
        {"training_image_config": {"training_repository_access_mode": "Platform"}},
        {"training_image_config": {"training_repository_access_mode": "Vpc"}},
    ),
    ("training_input_mode", {"training_input_mode": "Pipe"}, {"training_input_mode": "pipe"}),
    ("hyper_parameters", {"hyper_parameters": entries(100)}, {"hyper_parameters": entries(101)}),
    ("hyper_parameters." + "k" * 257, {"hyper_parameters": {"k" * 256: ""}}, {"hyper_parameters": {"k" * 257: ""}}),
    ("hyper_parameters.a", {"hyper_parameters": {"a": "v" * 2_500}}, {"hyper_parameters": {"a": "v" * 2_501}}),
    ("hyper_parameters.a", {"hyper_parameters": {"a": "1"}}, {"hyper_parameters": {"a": 1}}),
    (
        "metric_definitions",
        {"metric_definitions": [{"name": "a", "regex": "b"}] * 40},
        {"metric_definitions": [{"name": "a", "regex": "b"}] * 41},
    ),
    (
        "metric_definitions.0.name",
        {"metric_definitions": [{"name": "a" * 255, "regex": "b"}]},
        {"metric_definitions": [{"name": "a" * 256, "regex": "b"}]},
    ),
    (
        "metric_definitions.0.regex",
        {"metric_definitions": [{"name": "a", "regex": "b" * 500}]},
        {"metric_definitions": [{"name": "a", "regex": "b" * 501}]},
    ),
    (
        "metric_definitions.0.regex",
        {"metric_definitions": [{"name": "a", "regex": "(b)"}]},
        {"metric_definitions": [{"name": "a", "regex": "(b"}]},
    ),
    ("instance_type", {"instance_type": "ml.g5.xlarge"}, {"instance_type": "g5.xlarge"}),
    ("instance_count", {"instance_count": 256}, {"instance_count": 257}),
    ("instance_count", {"instance_count": 1}, {"instance_count": 0}),
    ("processes", {"processes": 256}, {"processes": 257}),
    ("processes", {"processes": "auto"}, {"processes": "all"}),
    ("processes", {"processes": 1}, {"processes": True}),
    ("overrides.0.processes", {"overrides": {"0": {"processes": 4}}}, {"overrides": {"0": {"processes": "4"}}}),
    (
        "fallback_instance_types",
        {"fallback_instance_types": ["ml.m5.large"]},
        {"fallback_instance_types": ["ml.m5.xlarge"]},
    ),
    (
        "instance_preferences",
        {"instance_preferences": [{"instance_type": f"ml.g5.{size}xlarge"} for size in (2, 4, 8, 12, 16)]},
        {"instance_preferences": [{"instance_type": f"ml.g5.{size}xlarge"} for size in (2, 4, 8, 12, 16, 24)]},
    ),
    (
        "instance_preferences",
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}]},
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}], "instance_type": "ml.g5.xlarge"},
    ),
    (
        "instance_preferences",
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}], "spot": False},
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}], "spot": True},
    ),
    (
        "instance_preferences.0.training_plan_arns.0",
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge", "training_plan_arns": [PLAN]}]},
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge", "training_plan_arns": ["arn"]}]},
    ),
    ("volume_gb", {"volume_gb": 1}, {"volume_gb": 0}),
    ("volume_gb", {"volume_gb": 65_536}, {"volume_gb": 65_537}),
    ("volume_kms_key_id", {"volume_kms_key_id": "k" * 2_048}, {"volume_kms_key_id": "k" * 2_049}),
    ("volume_kms_key_id", {"volume_kms_key_id": "alias/k_-"}, {"volume_kms_key_id": "alias/k."}),
    (
        "volume_kms_key_id",
        {"volume_kms_key_id": "k", "instance_type": "ml.c5.xlarge"},
        {"volume_kms_key_id": "k", "instance_type": "ml.g5.xlarge"},
    ),
    ("keep_alive_period_in_seconds", {"keep_alive_period_in_seconds": 3_600}, {"keep_alive_period_in_seconds": 3_601}),
    (
        "keep_alive_period_in_seconds",
        {"keep_alive_period_in_seconds": 0, "spot": True},
        {"keep_alive_period_in_seconds": 1, "spot": True},
    ),
    (
        "training_plan_arn",
        {"training_plan_arn": PLAN + "p" * (2_048 - len(PLAN))},
        {"training_plan_arn": PLAN + "p" * (2_049 - len(PLAN))},
    ),
    ("max_runtime_seconds", {"max_runtime_seconds": 1}, {"max_runtime_seconds": 0}),
    ("max_runtime_seconds", {"max_runtime_seconds": 2_419_200}, {"max_runtime_seconds": 2_419_201}),
    (
        "max_wait_seconds",
        {"spot": True, "max_runtime_seconds": 60, "max_wait_seconds": 60},
        {"spot": True, "max_runtime_seconds": 60, "max_wait_seconds": 59},
    ),
    ("max_pending_seconds", {"max_pending_seconds": 1_800}, {"max_pending_seconds": 1_799}),
    ("max_pending_seconds", {"max_pending_seconds": 2_419_200}, {"max_pending_seconds": 2_419_201}),
    (
        "retry_strategy.maximum_retry_attempts",
        {"retry_strategy": {"maximum_retry_attempts": 30}},
        {"retry_strategy": {"maximum_retry_attempts": 31}},
    ),
    (
        "retry_strategy.maximum_retry_attempts",
        {"retry_strategy": {"maximum_retry_attempts": 1}},
        {"retry_strategy": {"maximum_retry_attempts": 0}},
    ),
    ("role_arn", {"role_arn": "arn:aws:iam::123456789012:role/r"}, {"role_arn": "path/my-training-role"}),
    (
        "role_arn",
        {"role_arn": "arn:aws:iam::123456789012:role/" + "r" * (2_048 - 31)},
        {"role_arn": "arn:aws:iam::123456789012:role/" + "r" * (2_049 - 31)},
    ),
    (
        "vpc_config.security_group_ids",
        {"vpc_config": {"security_group_ids": ["sg"] * 5, "subnets": ["s"]}},
        {"vpc_config": {"security_group_ids": ["sg"] * 6, "subnets": ["s"]}},
    ),
    (
        "vpc_config.subnets",
        {"vpc_config": {"security_group_ids": ["sg"], "subnets": ["s"] * 16}},
        {"vpc_config": {"security_group_ids": ["sg"], "subnets": ["s"] * 17}},
    ),
    (
        "vpc_config.subnets.0",
        {"vpc_config": {"security_group_ids": ["sg"], "subnets": ["s" * 32]}},
        {"vpc_config": {"security_group_ids": ["sg"], "subnets": ["s" * 33]}},
    ),
    ("enable_network_isolation", {"enable_network_isolation": False}, {"enable_network_isolation": True}),
    (
        "input_data_config",
        channels(*(channel(f"c{index}") for index in range(20))),
        channels(*(channel(f"c{index}") for index in range(21))),
    ),
    ("input_data_config", channels(channel("a"), channel("b")), channels(channel("a"), channel("a"))),
    ("input_data_config.0.channel_name", channels(channel("c" * 64)), channels(channel("c" * 65))),
    ("input_data_config.0.channel_name", channels(channel("a.b-c_d")), channels(channel("a b"))),
    (
        "input_data_config.0.content_type",
        channels(channel(content_type="t" * 256)),
        channels(channel(content_type="t" * 257)),
    ),
    (
        "input_data_config.0.data_source.s3_data_source.s3_uri",
        channels(channel(source=s3(s3_uri=uri(1_024)))),
        channels(channel(source=s3(s3_uri=uri(1_025)))),
    ),
    (
        "input_data_config.0.data_source",
        channels(channel(source=files()), **VPC),
        channels(channel(source={**s3(), **files()}), **VPC),
    ),
    (
        "input_data_config.0.data_source.file_system_data_source",
        channels(channel(source=files()), **VPC),
        channels(channel(source=files())),
    ),
    (
        "input_data_config.0.data_source.file_system_data_source.file_system_id",
        channels(channel(source=files(file_system_id="fs-" + "0" * 18)), **VPC),
        channels(channel(source=files(file_system_id="fs-" + "0" * 19)), **VPC),
    ),
    (
        "input_data_config.0.data_source.file_system_data_source.directory_path",
        channels(channel(source=files(directory_path="/" + "d" * 4_095)), **VPC),
        channels(channel(source=files(directory_path="/" + "d" * 4_096)), **VPC),
    ),
    (
        "input_data_config.0.input_mode",
        channels(channel(source=files(), input_mode="File"), **VPC),
        channels(channel(source=files(), input_mode="Pipe"), **VPC),
    ),
    (
        "input_data_config.0.input_mode",
        channels(channel(source=s3(s3_data_type="AugmentedManifestFile", attribute_names=["a"]), input_mode="Pipe")),
        channels(channel(source=s3(s3_data_type="AugmentedManifestFile", attribute_names=["a"]), input_mode="File")),
    ),
    (
        "input_data_config.0.data_source.s3_data_source.attribute_names",
        channels(
            channel(source=s3(s3_data_type="AugmentedManifestFile", attribute_names=["a"] * 16), input_mode="Pipe")
        ),
        channels(
            channel(source=s3(s3_data_type="AugmentedManifestFile", attribute_names=["a"] * 17), input_mode="Pipe")
        ),
    ),
    (
        "input_data_config.0.data_source.s3_data_source.attribute_names",
        channels(channel()),
        channels(channel(source=s3(attribute_names=["a"]))),
    ),
    (
        "input_data_config.0.compression_type",
        channels(channel(compression_type="Gzip", input_mode="Pipe")),
        channels(channel(compression_type="Gzip")),
    ),
    (
        "input_data_config.0.record_wrapper_type",
        channels(channel(record_wrapper_type="RecordIO"), training_input_mode="Pipe"),
        channels(channel(record_wrapper_type="RecordIO"), training_input_mode="FastFile"),
    ),
    (
        "input_data_config.0.shuffle_config.seed",
        channels(channel(shuffle_config={"seed": 2**63 - 1})),
        channels(channel(shuffle_config={"seed": 2**63})),
    ),
    (
        "output_data_config.s3_output_path",
        {"output_data_config": {"s3_output_path": uri(1_024)}},
        {"output_data_config": {"s3_output_path": uri(1_025)}},
    ),
    (
        "output_data_config.s3_output_path",
        {"output_data_config": {"s3_output_path": "s3://bucket"}},
        {"output_data_config": {"s3_output_path": "/bucket"}},
    ),
    (
        "output_data_config.compression_type",
        {"output_data_config": {"compression_type": "NONE"}},
        {"output_data_config": {"compression_type": "None"}},
    ),
    # 976: with the run's name, the rank and the slash behind it, 1,024.
    (
        "checkpoint_config.s3_uri",
        {**PROGRAM, "checkpoint_config": {"s3_uri": uri(976)}},
        {**PROGRAM, "checkpoint_config": {"s3_uri": uri(977)}},
    ),
    (
        "checkpoint_config.local_path",
        {**PROGRAM, "checkpoint_config": {"local_path": "/" + "p" * 4_095}},
        {**PROGRAM, "checkpoint_config": {"local_path": "/" + "p" * 4_096}},
    ),
    (
        "checkpoint_config.local_path",
        {**PROGRAM, "checkpoint_config": {"local_path": "/opt/ml/models"}},
        {**PROGRAM, "checkpoint_config": {"local_path": "/opt/ml/model"}},
    ),
    (
        "checkpoint_config",
        {**PROGRAM, "checkpoint_config": {"local_path": "/saved"}},
        {**TRAINER, "checkpoint_config": {"local_path": "/saved"}},
    ),
    ("environment", {"environment": entries(92)}, {"environment": entries(93)}),
    ("environment." + "k" * 513, {"environment": {"k" * 512: ""}}, {"environment": {"k" * 513: ""}}),
    ("environment.a", {"environment": {"a": "v" * 512}}, {"environment": {"a": "v" * 513}}),
    ("tags", {"tags": entries(44)}, {"tags": entries(45)}),
    ("tags." + "k" * 129, {"tags": {"k" * 128: ""}}, {"tags": {"k" * 129: ""}}),
    ("tags.a", {"tags": {"a": "v" * 256}}, {"tags": {"a": "v" * 257}}),
    (
        "debug_hook_config.hook_parameters",
        {"debug_hook_config": {"s3_output_path": "s3://b1/k", "hook_parameters": entries(20)}},
        {"debug_hook_config": {"s3_output_path": "s3://b1/k", "hook_parameters": entries(21)}},
    ),
    (
        "debug_hook_config.collection_configurations",
        {"debug_hook_config": {"s3_output_path": "s3://b1/k", "collection_configurations": [{}] * 20}},
        {"debug_hook_config": {"s3_output_path": "s3://b1/k", "collection_configurations": [{}] * 21}},
    ),
    ("debug_rule_configurations", {"debug_rule_configurations": rules(20)}, {"debug_rule_configurations": rules(21)}),
    ("debug_rule_configurations", {"debug_rule_configurations": [rule()]}, {"debug_rule_configurations": [rule()] * 2}),
    (
        "profiler_rule_configurations.0.rule_parameters",
        {"profiler_rule_configurations": [rule(rule_parameters=entries(100))]},
        {"profiler_rule_configurations": [rule(rule_parameters=entries(101))]},
    ),
    (
        "profiler_rule_configurations.0.rule_parameters.a",
        {"profiler_rule_configurations": [rule(rule_parameters={"a": "v" * 256})]},
        {"profiler_rule_configurations": [rule(rule_parameters={"a": "v" * 257})]},
    ),
    (
        "profiler_config.profiling_interval_in_milliseconds",
        {"profiler_config": {"profiling_interval_in_milliseconds": 100}},
        {"profiler_config": {"profiling_interval_in_milliseconds": 99}},
    ),
    (
        "experiment_config.run_name",
        {"experiment_config": {"run_name": "r" * 120}},
        {"experiment_config": {"run_name": "r" * 121}},
    ),
    (
        "mlflow_config.mlflow_resource_arn",
        {"mlflow_config": {"mlflow_resource_arn": MLFLOW + "m" * (2_048 - len(MLFLOW))}},
        {"mlflow_config": {"mlflow_resource_arn": MLFLOW + "m" * (2_049 - len(MLFLOW))}},
    ),
    (
        "mlflow_config.mlflow_run_name",
        {"mlflow_config": {"mlflow_resource_arn": MLFLOW, "mlflow_run_name": "r" * 256}},
        {"mlflow_config": {"mlflow_resource_arn": MLFLOW, "mlflow_run_name": "r" * 257}},
    ),
    ("overrides.3-4", {"overrides": {"0-3": {}}}, {"overrides": {"3-4": {}}}),
    ("overrides.1", {"overrides": {"0,2-3": {}, "1": {}}}, {"overrides": {"0-3": {}, "1": {}}}),
    ("overrides.2-1", {"overrides": {"1-2": {}}}, {"overrides": {"2-1": {}}}),
    ("overrides.0 to 3", {"overrides": {"0": {}}}, {"overrides": {"0 to 3": {}}}),
    (
        "overrides.0.environment",
        {"environment": entries(91), "overrides": {"0": {"environment": {"more": ""}}}},
        {"environment": entries(92), "overrides": {"0": {"environment": {"more": ""}}}},
    ),
    (
        "overrides.0.fallback_instance_types",
        {"overrides": {"0": {"instance_type": "ml.g5.xlarge", "fallback_instance_types": ["ml.g6.xlarge"]}}},
        {"overrides": {"0": {"fallback_instance_types": ["ml.g6.xlarge"]}}},
    ),
    (
        "overrides.0.input_data_config",
        channels(
            *(channel(f"c{index}") for index in range(20)), overrides={"0": {"input_data_config": [channel("c0")]}}
        ),
        channels(
            *(channel(f"c{index}") for index in range(20)), overrides={"0": {"input_data_config": [channel("c")]}}
        ),
    ),
]


def complete(fields: dict[str, Any]) -> dict[str, Any]:
    """A spec of `fields`, with a program where they bring none. None removes a field."""
    program = {} if {"trainer", "entrypoint", "algorithm_name"} & set(fields) else TRAINER
    return {name: value for name, value in {**BASE, **program, **fields}.items() if value is not None}


@pytest.mark.parametrize(("field", "inside", "outside"), LIMITS)
def test_a_limit_holds_exactly(field, inside, outside):
    for request in requests(parse_spec(complete(inside))):
        assert refusals(request) == []
    with pytest.raises(SpecError) as caught:
        parse_spec(complete(outside))
    [problem] = caught.value.problems
    # Long names are cut.
    assert field.startswith(problem.field.removesuffix("…"))
    assert all(problem.found and problem.remedy for problem in caught.value.problems)


def test_all_problems_of_all_parts_are_reported_at_once_with_what_is_allowed():
    with pytest.raises(SpecError) as caught:
        parse_spec(
            {
                **complete({"enable_network_isolation": True, "instance_count": 400, "processes": 0, "volume_gb": 0}),
                "input_data_config": [channel("a b"), channel(compression_type="Gzip")],
                "vpc_config": {"subnets": []},
                "training_image": "image:1",
                "InstanceGroups": [],
            }
        )
    reported = {problem.field: str(problem) for problem in caught.value.problems}
    assert reported == {
        "enable_network_isolation": "enable_network_isolation: found true; replicas exchange data through S3 and "
        "cannot reach it when isolated; leave the field out (a VPC with an S3 endpoint keeps traffic private)",
        "instance_count": "instance_count: found 400; at most 256; lower it",
        "processes": "processes: found 0; allowed: auto, or a whole number from 1 to 256; write auto for one process "
        "per GPU",
        "volume_gb": "volume_gb: found 0; at least 1; raise it",
        "input_data_config.0.channel_name": "input_data_config.0.channel_name: found 'a b'; allowed: letters, "
        "digits and . - _; correct it",
        "vpc_config.security_group_ids": "vpc_config.security_group_ids: missing; it is required",
        "vpc_config.subnets": "vpc_config.subnets: found an empty list; at least 1 entry; add one, or leave the field "
        "out",
        "training_image": "training_image: unknown field; its name here is image",
        "InstanceGroups": "InstanceGroups: unknown field; all instances of a replica have one type; give "
        "ranks different types in `overrides`",
    }
