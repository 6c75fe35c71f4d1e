"""What the replicas of a stack may reach, and what a spec is told about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

ROLE = "arn:aws:iam::123456789012:role/Muster-Replica"
OWN = "arn:aws:iam::123456789012:role/team/own"


def spec(**fields: Any) -> Spec:
    return parse_spec({"replicas": 2, "trainer": "m:f", "image": "image:1", **fields})


def channel(uri: str, name: str = "train") -> dict[str, Any]:
    return {"channel_name": name, "data_source": {"s3_data_source": {"s3_uri": uri}}}


def remarks(data: list[str] | None, **fields: Any) -> list[str]:
    return ReplicaAccess(data=data).remarks(spec(**fields), "stack-bucket")


@pytest.mark.parametrize("uri", ["s3://team/data/", "s3://team/data/train/", "s3://team/data/train.csv"])
def test_what_the_settings_allow_is_read_without_a_word(uri: str) -> None:
    assert remarks(["s3://team/data/"], input_data_config=[channel(uri)]) == []


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        ("s3://other/set/", 'data = ["s3://team/data/", "s3://other/set/"]'),
        ("s3://other/set/part.csv", 'data = ["s3://team/data/", "s3://other/set/"]'),
        ("s3://other/part.csv", 'data = ["s3://team/data/", "s3://other/"]'),
        ("s3://other", 'data = ["s3://team/data/", "s3://other/"]'),
        ("s3://team/data2/", 'data = ["s3://team/data/", "s3://team/data2/"]'),
        ("s3://team/", 'data = ["s3://team/data/", "s3://team/"]'),
    ],
)
def test_a_channel_that_cannot_be_read_is_told_with_the_line_to_add(uri: str, line: str) -> None:
    (told,) = remarks(["s3://team/data/"], input_data_config=[channel(uri)])
    assert told.startswith(f"the replica role may not read {uri}")
    assert told.endswith(f": write {line} in the table [replicas] of muster.toml and deploy")


def test_a_folder_without_its_slash_cannot_be_listed() -> None:
    (told,) = remarks(["s3://team/data/"], input_data_config=[channel("s3://team/data")])
    assert told == (
        "the replica role may read below s3://team/data/ only, and not list s3://team/data: "
        "end the channel's s3_uri with a slash (s3://team/data/)"
    )
    (told,) = remarks([], input_data_config=[channel("s3://team/data")])
    assert 'data = ["s3://team/data/"]' in told
    assert told.endswith(", and end the channel's s3_uri with a slash (s3://team/data/)")


def test_each_place_is_named_once_whatever_rank_reads_it() -> None:
    own = {"input_data_config": [channel("s3://team/b/", "extra")]}
    told = remarks([], input_data_config=[channel("s3://team/a/")], overrides={"1": own})
    assert [text.split()[6].rstrip(":") for text in told] == ["s3://team/a/", "s3://team/b/"]


def test_results_can_be_written_to_the_stacks_bucket_alone() -> None:
    fields = {"output_data_config": {"s3_output_path": "s3://team/results/"}}
    (told,) = remarks([], **fields)
    assert told.startswith("the replica role may not write to s3://team/results/: leave it out")
    assert remarks([], output_data_config={"s3_output_path": "s3://stack-bucket/output/mine"}) == []


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({"remote_debug_config": {"enable_remote_debug": True}}, "ssmmessages:OpenDataChannel"),
        (
            {"mlflow_config": {"mlflow_resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/x"}},
            "sagemaker-mlflow:*",
        ),
        (
            {
                "vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
                "training_image_config": {
                    "training_repository_access_mode": "Vpc",
                    "training_repository_auth_config": {
                        "training_repository_credentials_provider_arn": (
                            "arn:aws:lambda:us-east-1:123456789012:function:login"
                        )
                    },
                },
            },
            '"lambda:InvokeFunction"], "Resource": "arn:aws:lambda:us-east-1:123456789012:function:login"',
        ),
    ],
)
def test_a_field_that_needs_a_right_comes_with_the_statement_to_paste(fields: dict[str, Any], action: str) -> None:
    (told,) = remarks([], **fields)
    assert '{"Effect": "Allow", "Action": ["' in told
    assert action in told
    assert remarks([], remote_debug_config={"enable_remote_debug": False}) == []


def test_nothing_is_said_about_rights_that_are_not_known() -> None:
    fields = {"input_data_config": [channel("s3://team/data/")], "mlflow_config": None}
    assert remarks(None, **fields) == []
    assert remarks([], role_arn=OWN, **fields) == []


def test_a_role_that_may_not_be_passed_is_refused_with_the_line_to_add() -> None:
    access = ReplicaAccess(data=[], roles=[f"{OWN}-1"])
    for allowed in (None, ROLE, f"{OWN}-1"):
        assert list(access.role_problems(spec(role_arn=allowed), ROLE)) == []
    (problem,) = access.role_problems(spec(role_arn=OWN), ROLE)
    assert f'further_role_arns = ["{OWN}-1", "{OWN}"] in the table [replicas] of muster.toml' in str(problem)
