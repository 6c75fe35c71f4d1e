"""Every limit of CreateTrainingJob that a spec can meet: one value just inside, one just outside."""

from collections.abc import Iterator
from typing import Any

from muster.contract.errors import SpecError
from muster.contract.spec.spec_reader import parse_spec
from tests.support.full_specs import channel, s3
from tests.support.job_requests import refusals, requests
from tests.support.refused_specs import refused_fields

Fields = dict[str, Any]

BASE = {"replicas": 4, "image": "image:1"}
TRAINER = {"trainer": "package.module:train"}
PROGRAM = {"entrypoint": ["program"]}
VPC = {"vpc_config": {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]}}
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:"
MLFLOW = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/"
ROLE = "arn:aws:iam::123456789012:role/"
SIZES = [{"instance_type": f"ml.g5.{size}xlarge"} for size in (2, 4, 8, 12, 16, 24)]
PREFERENCES = {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}]}
REGEX = {"name": "a", "regex": "b"}
SOURCE = "input_data_config.0.data_source"
FILE_SYSTEM = f"{SOURCE}.file_system_data_source"
MANIFEST = {"s3_data_type": "AugmentedManifestFile", "attribute_names": ["a"]}


def channels(*listed: Fields, **fields: Any) -> Fields:
    return {"input_data_config": list(listed), **fields}


def many_channels(count: int) -> list[Fields]:
    return [channel(f"c{number}") for number in range(count)]


def files(**fields: Any) -> Fields:
    source = {"file_system_id": "fs-01234567", "file_system_type": "EFS", "directory_path": "/data", **fields}
    return {"file_system_data_source": source}


def long(begin: str, length: int) -> str:
    return begin + "x" * (length - len(begin))


def rule(**fields: Any) -> Fields:
    return {"rule_configuration_name": "rule", "rule_evaluator_image": "image:1", **fields}


def rules(count: int) -> list[Fields]:
    return [rule(rule_configuration_name=f"rule{index}") for index in range(count)]


def registry(arn: str, mode: str = "Vpc") -> Fields:
    login = {"training_repository_credentials_provider_arn": arn}
    config = {"training_repository_access_mode": mode, "training_repository_auth_config": login}
    return {"training_image_config": config, **VPC}


def entries(count: int) -> dict[str, str]:
    return {f"key{index}": "value" for index in range(count)}


def with_value(part: Any, path: str, value: Any) -> Any:
    """`part` with `value` at `path`."""
    name, _, rest = path.partition(".")
    if isinstance(part, list):
        index = int(name)
        return [*part[:index], with_value(part[index], rest, value) if rest else value, *part[index + 1 :]]
    return {**(part or {}), name: with_value((part or {}).get(name), rest, value) if rest else value}


# The fields of the spec; then the field with the limit, just inside, just outside.
VALUES: list[tuple[Fields, list[tuple[str, Any, Any]]]] = [
    (
        TRAINER,
        [
            ("resume_from", "r" * 34, "r" * 41),
            ("source_dir", "s3://b/c.tar.gz", "s3://b/c.zip"),
            ("source_dir", "d" * 1_024, "d" * 1_025),
            ("image", "i" * 255, "i" * 256),
            ("training_input_mode", "Pipe", "pipe"),
            ("hyper_parameters", entries(100), entries(101)),
            ("hyper_parameters.a", "v" * 2_500, "v" * 2_501),
            ("hyper_parameters.a", "1", 1),
            ("instance_type", "ml.g5.xlarge", "g5.xlarge"),
            ("instance_count", 256, 257),
            ("instance_count", 1, 0),
            ("processes", 256, 257),
            ("processes", "auto", "all"),
            ("processes", 1, True),
            ("overrides.0.processes", 4, "4"),
            ("fallback_instance_types", ["ml.m5.large"], ["ml.m5.xlarge"]),
            ("instance_preferences", SIZES[:5], SIZES),
            ("volume_gb", 1, 0),
            ("volume_gb", 65_536, 65_537),
            ("volume_kms_key_id", "k" * 2_048, "k" * 2_049),
            ("volume_kms_key_id", "alias/k_-", "alias/k."),
            ("keep_alive_period_in_seconds", 3_600, 3_601),
            ("training_plan_arn", long(PLAN, 2_048), long(PLAN, 2_049)),
            ("max_runtime_seconds", 1, 0),
            ("max_runtime_seconds", 2_419_200, 2_419_201),
            ("max_pending_seconds", 1_800, 1_799),
            ("max_pending_seconds", 2_419_200, 2_419_201),
            ("retry_strategy.maximum_retry_attempts", 30, 31),
            ("retry_strategy.maximum_retry_attempts", 1, 0),
            ("role_arn", ROLE + "r", "path/my-training-role"),
            ("role_arn", long(ROLE, 2_048), long(ROLE, 2_049)),
            ("enable_network_isolation", False, True),
            ("session_chaining_config.enable_session_tag_chaining", True, False),
            ("output_data_config.s3_output_path", long("s3://bucket/", 1_024), long("s3://bucket/", 1_025)),
            ("output_data_config.s3_output_path", "s3://bucket", "/bucket"),
            ("output_data_config.compression_type", "NONE", "None"),
            ("environment", entries(92), entries(93)),
            ("environment.a", "v" * 512, "v" * 513),
            ("tags", entries(44), entries(45)),
            ("tags.a", "v" * 256, "v" * 257),
            ("debug_rule_configurations", rules(20), rules(21)),
            ("debug_rule_configurations", [rule()], [rule()] * 2),
            ("profiler_config.profiling_interval_in_milliseconds", 100, 99),
            ("experiment_config.run_name", "r" * 120, "r" * 121),
            ("mlflow_config.mlflow_resource_arn", long(MLFLOW, 2_048), long(MLFLOW, 2_049)),
        ],
    ),
    (
        {"continue": {"on": ["failed"], "max": 1}},
        [
            ("continue.max", 20, 21),
            ("continue.max", 1, 0),
            ("continue.on", ["spot"], []),
            ("continue.on.0", "spot", "rain"),
        ],
    ),
    (
        PROGRAM,
        [
            ("entrypoint", ["a"] * 100, ["a"] * 101),
            ("entrypoint", ["a"], []),
            ("entrypoint.0", "a" * 256, "a" * 257),
            ("arguments", ["a"] * 100, ["a"] * 101),
            # 976: with the run's name, the rank and the slash behind it, 1,024.
            ("checkpoint_config.s3_uri", long("s3://bucket/", 976), long("s3://bucket/", 977)),
            ("checkpoint_config.local_path", long("/", 4_096), long("/", 4_097)),
            ("checkpoint_config.local_path", "/opt/ml/models", "/opt/ml/model"),
        ],
    ),
    ({**PROGRAM, "arguments": ["a"]}, [("arguments.0", "a" * 256, "a" * 257), ("arguments.0", "a\tb", "a\u2028b")]),
    ({"source_dir": "code"}, [("entrypoint", ["a"] * 96, ["a"] * 97)]),
    ({"source_dir": "code", **PROGRAM}, [("input_data_config", many_channels(18), many_channels(19))]),
    ({"image": None}, [("algorithm_name", "a" * 63, "a" * 64), ("algorithm_name", "a-a", "a-")]),
    (
        {"metric_definitions": [REGEX]},
        [
            ("metric_definitions", [REGEX] * 40, [REGEX] * 41),
            ("metric_definitions.0.name", "a" * 255, "a" * 256),
            ("metric_definitions.0.regex", "b" * 500, "b" * 501),
            ("metric_definitions.0.regex", "(b)", "(b"),
        ],
    ),
    (
        {"instance_preferences": [{"instance_type": "ml.g5.xlarge", "training_plan_arns": [PLAN]}]},
        [("instance_preferences.0.training_plan_arns.0", PLAN, "arn")],
    ),
    ({"spot": True, "max_runtime_seconds": 60}, [("max_wait_seconds", 60, 59)]),
    ({"spot": True}, [("keep_alive_period_in_seconds", 0, 1)]),
    (
        VPC,
        [
            ("vpc_config.security_group_ids", ["sg"] * 5, ["sg"] * 6),
            ("vpc_config.subnets", ["s"] * 16, ["s"] * 17),
            ("vpc_config.subnets.0", "s" * 32, "s" * 33),
        ],
    ),
    (
        channels(channel()),
        [
            ("input_data_config", many_channels(20), many_channels(21)),
            ("input_data_config", [channel("a"), channel("b")], [channel("a"), channel("a")]),
            ("input_data_config.0.channel_name", "c" * 64, "c" * 65),
            ("input_data_config.0.channel_name", "a.b-c_d", "a b"),
            ("input_data_config.0.channel_name", "...", ".."),
            ("input_data_config.0.channel_name", ".a", "."),
            ("input_data_config.0.content_type", "t" * 256, "t" * 257),
            ("input_data_config.0.shuffle_config.seed", 2**63 - 1, 2**63),
            (f"{SOURCE}.s3_data_source.s3_uri", long("s3://bucket/", 1_024), long("s3://bucket/", 1_025)),
        ],
    ),
    (
        channels(channel(source=files()), **VPC),
        [
            (SOURCE, files(), {**s3(), **files()}),
            ("input_data_config.0.input_mode", "File", "Pipe"),
            ("input_data_config.0.shuffle_config", None, {"seed": 1}),
            (f"{FILE_SYSTEM}.file_system_id", "fs-" + "0" * 18, "fs-" + "0" * 19),
            (f"{FILE_SYSTEM}.directory_path", long("/", 4_096), long("/", 4_097)),
        ],
    ),
    (
        channels(channel(source=s3(**MANIFEST), input_mode="Pipe")),
        [
            ("input_data_config.0.input_mode", "Pipe", "File"),
            (f"{SOURCE}.s3_data_source.attribute_names", ["a"] * 16, ["a"] * 17),
        ],
    ),
    (
        {"debug_hook_config": {"s3_output_path": "s3://b1/k"}},
        [
            ("debug_hook_config.hook_parameters", entries(20), entries(21)),
            ("debug_hook_config.collection_configurations", [{}] * 20, [{}] * 21),
        ],
    ),
    (
        {"profiler_rule_configurations": [rule()]},
        [
            ("profiler_rule_configurations.0.rule_parameters", entries(100), entries(101)),
            ("profiler_rule_configurations.0.rule_parameters.a", "v" * 256, "v" * 257),
        ],
    ),
    ({"mlflow_config": {"mlflow_resource_arn": MLFLOW}}, [("mlflow_config.mlflow_run_name", "r" * 256, "r" * 257)]),
]

RECIPE = {"recipe": {"name": "own", "family": "general", "digest": "0" * 64}}
ONE_CHANNEL_MORE = {"overrides": {"0": {"input_data_config": [channel("new")]}}}
MODE = "training_image_config.training_repository_access_mode"
LOGIN = "training_image_config.training_repository_auth_config.training_repository_credentials_provider_arn"

# The field that the error names; the fields of the spec; then another field, just inside, just outside. None is none.
RELATIONS: list[tuple[str, Fields, str, Any, Any]] = [
    ("overrides.0.keep_alive_period_in_seconds", {"keep_alive_period_in_seconds": 60}, "overrides.0.spot", False, True),
    (
        "places.ladder[1].spot",
        {"keep_alive_period_in_seconds": 60, "places": {"ladder": [{"place": "oregon"}, {"place": "home"}]}},
        *("places.ladder.1.spot", False, True),
    ),
    ("overrides.0.instance_preferences", PREFERENCES, "overrides.0.spot", False, True),
    ("max_wait_seconds", {"max_wait_seconds": 90_000}, "overrides.0.spot", True, False),
    ("input_data_config", {**PROGRAM, **channels(channel("muster-source"))}, "source_dir", None, "code"),
    ("source_dir", {"image": None, "algorithm_name": "a"}, "source_dir", None, "code"),
    ("algorithm_name", {"algorithm_name": "a"}, "image", None, "image:1"),
    (LOGIN, registry(LAMBDA), LOGIN, long(LAMBDA, 2_048), long(LAMBDA, 2_049)),
    (MODE, registry(LAMBDA + "f"), MODE, "Vpc", "Platform"),
    (MODE, {}, MODE, "Platform", "Vpc"),
    ("hyper_parameters." + "k" * 257, {}, "hyper_parameters", {"k" * 256: ""}, {"k" * 257: ""}),
    ("environment." + "k" * 513, {}, "environment", {"k" * 512: ""}, {"k" * 513: ""}),
    ("tags." + "k" * 129, {}, "tags", {"k" * 128: ""}, {"k" * 129: ""}),
    ("instance_preferences", PREFERENCES, "instance_type", None, "ml.g5.xlarge"),
    ("instance_preferences", PREFERENCES, "spot", False, True),
    ("volume_kms_key_id", {"volume_kms_key_id": "k"}, "instance_type", "ml.c5.xlarge", "ml.g5.xlarge"),
    (FILE_SYSTEM, channels(channel(source=files())), "vpc_config", VPC["vpc_config"], None),
    (f"{SOURCE}.s3_data_source.attribute_names", channels(channel()), SOURCE, s3(), s3(attribute_names=["a"])),
    (
        "input_data_config.0.compression_type",
        channels(channel(compression_type="Gzip")),
        *("input_data_config.0.input_mode", "Pipe", "File"),
    ),
    (
        "input_data_config.0.record_wrapper_type",
        channels(channel(record_wrapper_type="RecordIO")),
        *("training_input_mode", "Pipe", "FastFile"),
    ),
    ("checkpoint_config", {"checkpoint_config": {"local_path": "/saved"}}, "entrypoint", ["program"], None),
    ("overrides.3-4", {}, "overrides", {"0-3": {}}, {"3-4": {}}),
    ("overrides.1", {"overrides": {"1": {}}}, "overrides", {"0,2-3": {}, "1": {}}, {"0-3": {}, "1": {}}),
    ("overrides.2-1", {}, "overrides", {"1-2": {}}, {"2-1": {}}),
    ("overrides.0 to 3", {}, "overrides", {"0": {}}, {"0 to 3": {}}),
    (
        "overrides.0.environment",
        {"overrides": {"0": {"environment": {"more": ""}}}},
        *("environment", entries(91), entries(92)),
    ),
    ("environment", {"places": {"home": 4}, "overrides": {"0": {}}}, "environment", entries(91), entries(92)),
    (
        "overrides.0.environment",
        {"places": {"home": 4}, "overrides": {"0": {"environment": {"more": ""}}}},
        *("environment", entries(90), entries(91)),
    ),
    (
        "overrides.0.fallback_instance_types",
        {"overrides": {"0": {"fallback_instance_types": ["ml.g6.xlarge"]}}},
        *("overrides.0.instance_type", "ml.g5.xlarge", None),
    ),
    ("overrides.0.input_data_config", ONE_CHANNEL_MORE, "input_data_config", many_channels(19), many_channels(20)),
    (
        "overrides.0.input_data_config",
        {**ONE_CHANNEL_MORE, "source_dir": "code"},
        *("input_data_config", many_channels(17), many_channels(18)),
    ),
    ("input_data_config", {"source_dir": "code", **RECIPE}, "input_data_config", many_channels(17), many_channels(18)),
    (
        "overrides.0.input_data_config",
        {"overrides": {"0": channels(channel("muster-package"))}},
        *("source_dir", None, "code"),
    ),
    ("environment", {"sweep": {"environment.S": ["1"] * 4}}, "environment", entries(91), entries(92)),
    ("hyper_parameters", {"sweep": {"hyper_parameters.S": ["1"] * 4}}, "hyper_parameters", entries(99), entries(100)),
]


def cases() -> Iterator[tuple[str, Fields, Fields]]:
    for field, common, path, inside, outside in RELATIONS:
        yield field, with_value(common, path, inside), with_value(common, path, outside)
    for common, rows in VALUES:
        for path, inside, outside in rows:
            yield path, with_value(common, path, inside), with_value(common, path, outside)


def complete(fields: Fields) -> Fields:
    """A spec of `fields`, with a program where they bring none. None removes a field."""
    given = {name: value for name, value in {**BASE, **fields}.items() if value is not None}
    return given if {"trainer", "entrypoint", "algorithm_name"} & given.keys() else {**TRAINER, **given}


def test_a_limit_holds_exactly() -> None:
    wrong: list[object] = []
    for field, inside, outside in cases():
        try:
            wrong += [
                (field, refusal) for request in requests(parse_spec(complete(inside))) for refusal in refusals(request)
            ]
        except SpecError as error:
            wrong.append((field, "inside", str(error)))
        found = refused_fields(complete(outside))
        # Long names are cut.
        if [field.startswith(name.removesuffix("…")) for name in found] != [True]:
            wrong.append((field, "outside", found))
    assert wrong == []
