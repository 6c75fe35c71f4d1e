"""What a run cannot reach where it takes place is refused before anything is made."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.aws.partitions import Locality
from muster.contract.spec.foreign_resources import foreign_resources
from muster.contract.spec.spec_reader import parse_spec

GOV = Locality("aws-us-gov", "us-gov-west-1", "123456789012")
CHINA = Locality("aws-cn", "cn-north-1", "123456789012")
PLAN = "arn:aws-us-gov:sagemaker:us-gov-east-1:123456789012:training-plan/tp-1234567890"


def problems(here: Locality, **fields: Any) -> list[str]:
    spec = parse_spec({"replicas": 2, "entrypoint": ["python"], **fields})
    return [str(problem) for problem in foreign_resources(spec.model_dump(mode="json"), here)]


def test_aws_image_of_another_region_is_refused_with_the_one_to_use() -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.7.1"
    assert problems(GOV, image=image) == [
        (
            f"image: found '{image}'; an image in a registry of us-gov-west-1: SageMaker pulls none from another region; "
            "use 442386744353.dkr.ecr.us-gov-west-1.amazonaws.com/pytorch-training:2.7.1"
        )
    ]


def test_a_users_image_of_another_partition_is_copied_to_the_domain_of_this_one() -> None:
    [problem] = problems(CHINA, image="999999999999.dkr.ecr.eu-west-1.amazonaws.com/training:7")
    assert problem.endswith("copy it to 123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn")


@pytest.mark.parametrize(
    "image",
    [
        "999999999999.dkr.ecr.us-gov-west-1.amazonaws.com/training:7",
        "999999999999.dkr.ecr-fips.us-gov-west-1.amazonaws.com/training:7",
        "registry.example.com/training:7",
        "muster-local/python",
    ],
)
def test_an_image_of_this_region_or_of_no_ecr_registry_is_accepted(image: str) -> None:
    assert problems(GOV, image=image) == []


def test_what_some_ranks_have_is_looked_at() -> None:
    [problem] = problems(
        GOV, image="i", overrides={"1": {"instance_type": "ml.p5.48xlarge", "training_plan_arn": PLAN}}
    )
    assert problem.startswith("overrides.1.training_plan_arn: ")


def test_a_key_of_another_partition_is_refused() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"
    assert problems(GOV, image="i", volume_kms_key_id=key) == [
        (
            f"volume_kms_key_id: found '{key}'; a resource of the partition aws-us-gov: the stack is in us-gov-west-1; "
            "name one that was made there"
        )
    ]


def test_a_training_plan_of_another_region_is_refused() -> None:
    [problem] = problems(GOV, image="i", instance_type="ml.p5.48xlarge", training_plan_arn=PLAN)
    assert "a resource in us-gov-west-1, the stack's region" in problem


def test_a_key_of_another_account_is_accepted() -> None:
    assert problems(GOV, image="i", volume_kms_key_id="arn:aws-us-gov:kms:us-gov-west-1:999999999999:key/1") == []


def test_a_role_of_another_account_is_refused() -> None:
    [problem] = problems(GOV, image="i", role_arn="arn:aws-us-gov:iam::999999999999:role/replicas")
    assert "a role cannot be passed to another account" in problem
    assert problems(GOV, image="i", role_arn="arn:aws-us-gov:iam::123456789012:role/replicas") == []


def test_what_the_program_reads_is_its_own_affair() -> None:
    arn = "arn:aws:s3:::bucket-of-another-partition"
    fields: dict[str, Any] = {"environment": {"DATA": arn}, "arguments": [arn], "hyper_parameters": {"data": arn}}
    assert problems(GOV, image="i", tags={"from": arn}, **fields) == []


def test_every_problem_is_told_at_once() -> None:
    key, image = "arn:aws:kms:us-east-1:123456789012:key/1", "999999999999.dkr.ecr.us-east-1.amazonaws.com/t:7"
    role = "arn:aws:iam::123456789012:role/replicas"
    assert len(problems(CHINA, image=image, volume_kms_key_id=key, role_arn=role)) == 3
