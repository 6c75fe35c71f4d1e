"""What a stack gives to specs, and what it leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.network_access import VpcConfig

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234"
DEFAULTS = StackDefaults(
    image="image:stack",
    instance_type="ml.c5.xlarge",
    vpc_config=VpcConfig(subnets=["subnet-1"], security_group_ids=["sg-1"]),
    kms_key_id=KEY,
    tags={"team": "research", "centre": "7"},
)
PLACE = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/replica", job_prefix="muster")


def spec(**fields: Any) -> Spec:
    return parse_spec({"replicas": 2, "trainer": "package.module:train", **fields})


def request(completed: Spec, rank: int = 0, shortages: int = 0) -> dict[str, Any]:
    plan = Plan.make(
        "run", "arn:aws:states:us-east-1:123456789012:execution:Muster:run", "2026-01-01", PLACE, completed
    )
    again = Plan.from_json(plan.to_json(), "plan.json")  # what a function reads back is held to all limits again
    return training_job_request(again, rank, 1, shortages)


def test_rights_that_a_newer_version_has_added_are_no_error():
    """In the minute of a deployment the older function reads the newer settings."""
    fields = {"access": {"data": ["s3://data/"], "added_later": True}, "added_later": 1}
    read = StackDefaults.from_json(json.dumps(fields), "MUSTER_DEFAULTS")
    assert read.access is not None
    assert read.access.data == ["s3://data/"]


def test_what_a_spec_does_not_say_is_the_stacks():
    sent = request(DEFAULTS.complete(spec()))
    assert sent["AlgorithmSpecification"]["TrainingImage"] == "image:stack"
    assert sent["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"
    assert sent["ResourceConfig"]["VolumeKmsKeyId"] == KEY
    assert sent["OutputDataConfig"]["KmsKeyId"] == KEY
    assert sent["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert {"Key": "team", "Value": "research"} in sent["Tags"]


def test_what_a_spec_says_stands():
    own = {
        "image": "image:own",
        "instance_type": "ml.m5.large",
        "vpc_config": {"subnets": ["subnet-9"], "security_group_ids": ["sg-9"]},
        "volume_kms_key_id": "alias/volume",
        "output_data_config": {"kms_key_id": "alias/output"},
        "tags": {"team": "vision"},
    }
    completed = DEFAULTS.complete(spec(**own))
    assert completed.tags == {"team": "vision", "centre": "7"}
    assert completed.model_copy(update={"tags": own["tags"]}) == spec(**own)


def test_a_stack_without_defaults_changes_nothing():
    assert StackDefaults().complete(spec(image="image:1")) == spec(image="image:1")


def test_an_algorithm_and_preferences_are_not_given_what_contradicts_them():
    chosen = {"algorithm_name": "algorithm", "instance_preferences": [{"instance_type": "ml.m5.large"}]}
    completed = DEFAULTS.complete(parse_spec({"replicas": 1, **chosen}))
    assert (completed.image, completed.instance_type) == (None, None)


def test_the_key_is_for_volumes_that_sagemaker_can_encrypt_with_it():
    completed = DEFAULTS.complete(
        spec(
            instance_type="ml.m5.large",
            fallback_instance_types=["ml.g5.xlarge"],
            overrides={"1": {"instance_type": "ml.g5.xlarge"}},
        )
    )
    keys = [request(completed, *which)["ResourceConfig"].get("VolumeKmsKeyId") for which in ((0, 0), (0, 1), (1, 0))]
    assert keys == [KEY, None, None]
    assert DEFAULTS.complete(spec(instance_type="ml.g5.xlarge")).volume_kms_key_id is None
    mixed = [{"instance_type": "ml.m5.large"}, {"instance_type": "ml.g5.xlarge"}]
    assert DEFAULTS.complete(spec(instance_preferences=mixed)).volume_kms_key_id is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"fallback_instance_types": ["ml.c5.xlarge"]}, "fallback_instance_types: found ml.c5.xlarge 2 times"),
        ({"tags": {f"key{n}": "" for n in range(43)}}, "tags: found 45 entries; at most 44 entries"),
    ],
)
def test_a_conflict_of_spec_and_default_is_reported_like_any_other_problem(fields, problem):
    with pytest.raises(SpecError, match=problem):
        DEFAULTS.complete(spec(**fields))
