"""What a run can reach: the resources of its partition and region, and what its replicas' role allows."""

import json
from pathlib import Path
from typing import Any

import botocore

from muster.contract.aws.partitions import CONSOLE_DOMAINS, Locality, console_base, dns_suffix
from muster.contract.aws.stock_images import STOCK_ACCOUNTS, stock_registry
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from tests.support.full_specs import channel, s3

PARTITIONS = json.loads((Path(botocore.__file__).parent / "data" / "partitions.json").read_bytes())["partitions"]
GOV = Locality("aws-us-gov", "us-gov-west-1", "123456789012")
CHINA = Locality("aws-cn", "cn-north-1", "123456789012")
PLAN = "arn:aws-us-gov:sagemaker:us-gov-east-1:123456789012:training-plan/tp-1234567890"
ROLE = "arn:aws:iam::123456789012:role/Muster-Replica"
OWN = "arn:aws:iam::123456789012:role/team/own"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"


def spec(**fields: Any) -> Spec:
    return parse_spec({"replicas": 2, "entrypoint": ["python"], "image": "i", **fields})


# --- where --------------------------------------------------------------------------------------------


def test_domains_and_stock_images_are_those_of_each_partition() -> None:
    for partition in PARTITIONS:
        named = [region for region in partition["regions"] if not region.endswith("-global")]
        assert {dns_suffix(region) for region in named} <= {partition["outputs"]["dnsSuffix"]}, partition["id"]
    assert set(CONSOLE_DOMAINS) <= {partition["id"] for partition in PARTITIONS}
    assert set(STOCK_ACCOUNTS) <= {region for partition in PARTITIONS for region in partition["regions"]}
    assert console_base("aws-cn", "cn-north-1") == "https://cn-north-1.console.amazonaws.cn"
    assert Locality.of_arn("arn:aws-cn:states:cn-north-1:123456789012:execution:Runs:r") == CHINA
    for region, registry in (
        ("eu-west-1", "763104351884.dkr.ecr.eu-west-1.amazonaws.com"),
        ("us-gov-east-1", "446045086412.dkr.ecr.us-gov-east-1.amazonaws.com"),
        ("cn-north-1", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ):
        assert stock_registry(region) == registry


def foreign(here: Locality, **fields: Any) -> list[str]:
    return [str(problem) for problem in foreign_resources(spec(**fields).model_dump(mode="json"), here)]


# Where the run is, the fields, and parts of the one problem.
FOREIGN: list[tuple[Locality, dict[str, Any], tuple[str, str]]] = [
    (
        GOV,
        {"image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.7.1"},
        ("image: found '763", "use 442386744353.dkr.ecr.us-gov-west-1.amazonaws.com/pytorch-training:2.7.1"),
    ),
    # A user's own image is copied to the domain of this partition.
    (
        CHINA,
        {"image": "999999999999.dkr.ecr.eu-west-1.amazonaws.com/training:7"},
        ("image: ", "copy it to 123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ),
    (GOV, {"volume_kms_key_id": KEY}, ("volume_kms_key_id: found 'arn:aws:kms:us-east-1:", "aws-us-gov")),
    (
        GOV,
        {"overrides": {"1": {"instance_type": "ml.p5.48xlarge", "training_plan_arn": PLAN}}},
        ("overrides.1.training_plan_arn: ", "in us-gov-west-1, the stack's region"),
    ),
    (GOV, {"role_arn": "arn:aws-us-gov:iam::999999999999:role/replicas"}, ("role_arn: ", "another account")),
]
# A key may be of another account; what the program reads is its own affair.
REACHED: list[dict[str, Any]] = [
    {"image": "999999999999.dkr.ecr.us-gov-west-1.amazonaws.com/training:7"},
    {"image": "999999999999.dkr.ecr-fips.us-gov-west-1.amazonaws.com/training:7"},
    {"image": "registry.example.com/training:7"},
    {"volume_kms_key_id": "arn:aws-us-gov:kms:us-gov-west-1:999999999999:key/1"},
    {"role_arn": "arn:aws-us-gov:iam::123456789012:role/replicas"},
    {"environment": {"A": KEY}, "arguments": [KEY], "hyper_parameters": {"a": KEY}, "tags": {"a": KEY}},
]


def test_what_is_of_another_partition_region_or_account_is_refused_with_what_to_use() -> None:
    for here, fields, parts in FOREIGN:
        [problem] = foreign(here, **fields)
        assert problem.startswith(parts[0]), problem
        assert parts[1] in problem, problem
    assert [fields for fields in REACHED if foreign(GOV, **fields)] == []
    assert len(foreign(CHINA, image="999999999999.dkr.ecr.us-east-1.amazonaws.com/t:7", role_arn=ROLE)) == 2


# --- with which rights --------------------------------------------------------------------------------


def remarks(data: list[str] | None, *uris: str, **fields: Any) -> list[str]:
    channels = [channel(f"c{number}", source=s3(s3_uri=uri)) for number, uri in enumerate(uris)]
    return ReplicaAccess(data=data).remarks(spec(**fields, input_data_config=channels), "stack-bucket")


def test_a_channel_that_cannot_be_read_is_told_with_the_line_to_add() -> None:
    allowed = "s3://team/data/"
    for uri in (allowed, "s3://team/data/train/", "s3://team/data/train.csv"):
        assert remarks([allowed], uri) == [], uri
    for uri, place in (
        ("s3://other/set/part.csv", "s3://other/set/"),
        ("s3://other/part.csv", "s3://other/"),
        ("s3://other", "s3://other/"),
        ("s3://team/data2/", "s3://team/data2/"),
        ("s3://team/", "s3://team/"),
    ):
        (told,) = remarks([allowed], uri)
        assert f" read {uri}" in told
        assert f'data = ["{allowed}", "{place}"] in the table [replicas]' in told, uri
    # A folder without its slash cannot be listed.
    for data, words in (([allowed], "not list s3://team/data: "), ([], 'data = ["s3://team/data/"]')):
        (told,) = remarks(data, "s3://team/data")
        assert words in told
        assert told.endswith("with a slash (s3://team/data/)")
    # Each place is named once, whatever rank reads it.
    own = {"input_data_config": [channel("extra", source=s3(s3_uri="s3://team/b/"))]}
    (both,) = remarks([], "s3://team/a/", overrides={"1": own})
    assert " read s3://team/a/, s3://team/b/: " in both
    assert 'data = ["s3://team/a/", "s3://team/b/"]' in both


def test_a_field_that_needs_a_right_comes_with_what_to_add_and_nothing_is_said_of_rights_that_are_not_known() -> None:
    login = "arn:aws:lambda:us-east-1:123456789012:function:login"
    image = {
        "training_repository_access_mode": "Vpc",
        "training_repository_auth_config": {"training_repository_credentials_provider_arn": login},
    }
    vpc = {"vpc_config": {"subnets": ["s-1"], "security_group_ids": ["sg-1"]}, "training_image_config": image}
    app = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/x"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"remote_debug_config": {"enable_remote_debug": True}}, "ssmmessages:OpenDataChannel"),
        ({"mlflow_config": {"mlflow_resource_arn": app}}, "sagemaker-mlflow:*"),
        (
            {"entrypoint": None, "trainer": "m:f", "metrics": {"mlflow": {"tracking_uri": app}}},
            f'"Action": ["sagemaker-mlflow:*"], "Resource": "{app}"',
        ),
        (vpc, f'"lambda:InvokeFunction"], "Resource": "{login}"'),
        ({"output_data_config": {"s3_output_path": "s3://team/results/"}}, "write to s3://team/results/: "),
    ]
    for fields, action in rows:
        (told,) = remarks([], **fields)
        assert action in told
        assert remarks(None, "s3://team/data/", **fields) == remarks([], role_arn=OWN, **fields) == []
    for granted in (
        {"remote_debug_config": {"enable_remote_debug": False}},
        {"output_data_config": {"s3_output_path": "s3://stack-bucket/output/mine"}},
    ):
        assert remarks([], **granted) == []


def test_a_role_that_may_not_be_passed_is_refused_with_the_line_to_add() -> None:
    access = ReplicaAccess(data=[], roles=[f"{OWN}-1"])
    for allowed in (None, ROLE, f"{OWN}-1"):
        assert list(access.role_problems(spec(role_arn=allowed), ROLE)) == []
    (problem,) = access.role_problems(spec(role_arn=OWN), ROLE)
    assert f'further_role_arns = ["{OWN}-1", "{OWN}"] in the table [replicas] of muster.toml' in str(problem)
