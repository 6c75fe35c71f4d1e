"""A plan: its bytes and digest, what the stack and single ranks give to it, the requests and documents that follow."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.errors import SpecError
from muster.contract.names import TAG_PLAN
from muster.contract.run.job_request import job_tags, training_job_request
from muster.contract.run.plan import Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.ranks import parse_ranks, show_ranks
from tests.support.full_specs import channel
from tests.support.job_requests import plan_of, requests

# A plan as the first release wrote it. Never regenerate it: runs that were planned then are read by today's code.
GOLDEN = Path(__file__).parent / "plan_v1.json"


def spec_of(**fields: Any) -> Spec:
    return parse_spec({"replicas": 2, "trainer": "a.b:c", "image": "image:1", **fields})


def make_plan(**fields: Any) -> Plan:
    return plan_of(spec_of(**fields))


def sent(**fields: Any) -> list[Any]:
    """The requests of all ranks, after as many shortages as their ranks."""
    return requests(spec_of(**fields))


def test_a_plan_of_the_first_release_keeps_its_digest_and_its_requests() -> None:
    plan = Plan.from_json(GOLDEN.read_bytes(), "golden")
    assert plan.digest == json.loads(GOLDEN.read_text())["digest"]
    assert job_tags(plan, 1, 2)[TAG_PLAN] == plan.digest
    assert training_job_request(plan, 1, 2)["TrainingJobName"] == "muster-golden-r1-a2"


def test_the_same_execution_and_spec_give_the_same_bytes_and_any_change_another_digest() -> None:
    assert make_plan().to_json() == make_plan().to_json()
    digests = {make_plan(**change).digest for change in ({}, {"replicas": 3}, {"kwargs": {"a": 1}}, {"spot": True})}
    assert len(digests) == 4


def test_a_request_isolates_nothing_and_leaves_torchs_variables_and_arguments_of_any_size_to_the_replica() -> None:
    plan = make_plan(environment={"A": "b"}, kwargs={"text": "x" * 200_000})
    request: Any = training_job_request(plan, 1, 2)
    assert request["EnableNetworkIsolation"] is False
    assert request["Environment"] == {
        "A": "b",
        "MUSTER_DOCUMENT": "s3://bucket/runs/run/document.json",
        "MUSTER_RUN": "run",
        "MUSTER_RANK": "1",
        "MUSTER_ATTEMPT": "2",
        "MUSTER_REGION": "us-east-1",
        "MUSTER_PROCESSES": "auto",
    }
    document = RunDocument.of(plan)
    assert document.kwargs == plan.spec.kwargs
    assert [word for word in (b"arn:", b"control/") if word in document.to_json()] == []


def test_each_replica_starts_as_many_processes_as_its_spec_says() -> None:
    found = sent(instance_count=2, processes=8, overrides={"0": {"instance_count": 1, "processes": "auto"}})
    assert [request["ResourceConfig"]["InstanceCount"] for request in found] == [1, 2]
    assert [request["Environment"]["MUSTER_PROCESSES"] for request in found] == ["auto", "8"]
    # A program that is no trainer starts its processes itself; a plan of a version without processes has one.
    program = requests(parse_spec({"replicas": 1, "image": "i", "entrypoint": ["torchrun"], "instance_count": 2}))[0]
    assert program["ResourceConfig"]["InstanceCount"] == 2
    stored = json.loads(make_plan().to_json())
    del stored["spec"]["processes"]
    older: Any = training_job_request(Plan.from_json(json.dumps(stored).encode(), "plan"), 0, 1)
    assert [request["Environment"].get("MUSTER_PROCESSES") for request in (program, older)] == [None, None]


# --- ranks --------------------------------------------------------------------------------------------


def test_ranks_have_what_their_overrides_say() -> None:
    vpc = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}
    reserved = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"
    on_demand = {"spot": False, "instance_type": "ml.p5.48xlarge", "training_plan_arn": reserved}
    own_channels = [channel("train", content_type="own"), channel("extra")]
    first, second, third = sent(
        replicas=3,
        spot=True,
        max_wait_seconds=90_000,
        vpc_config=vpc,
        environment={"A": "common", "B": "common"},
        input_data_config=[channel("train"), channel("test")],
        overrides={
            "0": {**on_demand, "environment": {"A": "own"}},
            "1-2": {"vpc_config": {**vpc, "subnets": ["subnet-2"]}, "input_data_config": own_channels},
        },
    )
    for request, spot in ((first, False), (second, True), (third, True)):
        assert request["EnableManagedSpotTraining"] is spot
        assert ("MaxWaitTimeInSeconds" in request["StoppingCondition"]) is spot
        assert request["Environment"]["A"] == ("common" if spot else "own")
        assert request["Environment"]["B"] == "common"
        assert request["VpcConfig"]["Subnets"] == (["subnet-2"] if spot else ["subnet-1"])
        assert request["ResourceConfig"].get("TrainingPlanArn") == (None if spot else reserved)
        channels = {one["ChannelName"]: one.get("ContentType") for one in request["InputDataConfig"]}
        assert channels == ({"train": "own", "test": None, "extra": None} if spot else {"train": None, "test": None})


def test_a_type_of_its_own_replaces_fallbacks_and_preferences_too() -> None:
    own = {
        "1": {"instance_type": "ml.p3.2xlarge"},
        "2": {"instance_type": "ml.a.x", "fallback_instance_types": ["ml.b.x"]},
    }
    fallback = {"fallback_instance_types": ["ml.g6.xlarge"]}
    rows: list[tuple[dict[str, Any], list[str | None]]] = [
        ({"instance_type": "ml.g5.xlarge", **fallback}, ["ml.g5.xlarge", "ml.g6.xlarge", "ml.g5.xlarge"]),
        ({**fallback, "overrides": own}, ["ml.m5.xlarge", "ml.p3.2xlarge", "ml.a.x"]),
        (
            {"instance_preferences": [{"instance_type": "ml.g5.xlarge"}], "overrides": own},
            [None, "ml.p3.2xlarge", "ml.a.x"],
        ),
    ]
    for fields, types in rows:
        found = [request["ResourceConfig"].get("InstanceType") for request in sent(replicas=3, **fields)]
        assert found == types, fields


@given(st.sets(st.integers(0, 200)))
def test_ranks_that_are_shown_can_be_read(ranks: set[int]) -> None:
    shown = show_ranks(sorted(ranks))
    assert [rank for part in parse_ranks(shown) for rank in part] == sorted(ranks) if ranks else shown == ""
    assert show_ranks([0, 2, 8, 9, 10]) == "0,2,8-10"


# --- the stack's defaults -----------------------------------------------------------------------------

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234"
DEFAULTS = StackDefaults(
    image="image:stack",
    instance_type="ml.c5.xlarge",
    vpc_config=VpcConfig(subnets=["subnet-1"], security_group_ids=["sg-1"]),
    kms_key_id=KEY,
    tags={"team": "research", "centre": "7"},
)


def completed(**fields: Any) -> Spec:
    return DEFAULTS.complete(parse_spec({"replicas": 2, "trainer": "a.b:c", **fields}))


def test_what_a_spec_does_not_say_is_the_stacks_and_what_it_says_stands() -> None:
    request = requests(completed())[0]
    assert request["AlgorithmSpecification"]["TrainingImage"] == "image:stack"
    assert request["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"
    assert request["ResourceConfig"]["VolumeKmsKeyId"] == KEY
    assert request["OutputDataConfig"]["KmsKeyId"] == KEY
    assert request["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    assert {"Key": "team", "Value": "research"} in request["Tags"]
    own = {
        "image": "image:own",
        "instance_type": "ml.m5.large",
        "vpc_config": {"subnets": ["subnet-9"], "security_group_ids": ["sg-9"]},
        "volume_kms_key_id": "alias/volume",
        "output_data_config": {"kms_key_id": "alias/output"},
        "tags": {"team": "vision"},
    }
    assert completed(**own).tags == {"team": "vision", "centre": "7"}
    assert completed(**own).model_copy(update={"tags": own["tags"]}) == spec_of(**own)
    # An algorithm and preferences are not given what contradicts them.
    chosen = {"algorithm_name": "algorithm", "instance_preferences": [{"instance_type": "ml.m5.large"}]}
    algorithm = DEFAULTS.complete(parse_spec({"replicas": 1, **chosen}))
    assert (algorithm.image, algorithm.instance_type) == (None, None)


def test_the_key_is_for_volumes_that_sagemaker_can_encrypt_with_it() -> None:
    kinds = {"instance_type": "ml.m5.large", "fallback_instance_types": ["ml.g5.xlarge"]}
    own = {"0": {"instance_type": "ml.g5.xlarge"}, "2": {"instance_type": "ml.c5.xlarge"}}
    # The second request comes after one shortage, with the fallback.
    found = requests(completed(replicas=3, **kinds, overrides=own))
    keys = [request["ResourceConfig"].get("VolumeKmsKeyId") for request in found]
    assert keys == [None, None, KEY]
    mixed = [{"instance_type": "ml.m5.large"}, {"instance_type": "ml.g5.xlarge"}]
    assert completed(instance_preferences=mixed).volume_kms_key_id is None


def test_a_conflict_of_spec_and_default_is_reported_like_any_other_problem() -> None:
    with pytest.raises(SpecError, match=r"fallback_instance_types: found .* 2 times"):
        completed(fallback_instance_types=["ml.c5.xlarge"])
    with pytest.raises(SpecError, match="tags: found 45 entries; at most 44"):
        completed(tags={f"key{n}": "" for n in range(43)})


def test_rights_that_a_newer_version_has_added_are_no_error() -> None:
    """In the minute of a deployment the older function reads the newer settings."""
    fields = {"access": {"data": ["s3://data/"], "added_later": True}, "added_later": 1}
    read = StackDefaults.from_json(json.dumps(fields), "MUSTER_DEFAULTS")
    assert read.access is not None
    assert read.access.data == ["s3://data/"]
