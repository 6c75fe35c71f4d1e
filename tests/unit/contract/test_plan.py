import json
from pathlib import Path

import pytest

from muster.contract.errors import DocumentError
from muster.contract.names import TAG_PLAN
from muster.contract.run.job_request import job_tags, training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.spec_reader import parse_spec

PLACE = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/replica", job_prefix="muster")
# A plan as the first release wrote it. Never regenerate it: runs that were planned then are read by today's code.
GOLDEN = Path(__file__).parent / "plan_v1.json"


def make_plan(**fields) -> Plan:
    spec = parse_spec({"replicas": 2, "trainer": "a.b:c", "image": "image:1", **fields})
    return Plan.make(
        "run", "arn:aws:states:us-east-1:123456789012:execution:Muster:run", "2026-01-01T00:00:00Z", PLACE, spec
    )


def test_a_plan_of_the_first_release_keeps_its_digest_and_its_requests():
    plan = Plan.from_json(GOLDEN.read_bytes(), "golden")
    assert plan.digest == json.loads(GOLDEN.read_text())["digest"]
    assert job_tags(plan, 1, 2)[TAG_PLAN] == plan.digest
    assert training_job_request(plan, 1, 2)["TrainingJobName"] == "muster-golden-r1-a2"


def test_the_same_execution_and_spec_give_the_same_bytes_and_any_change_another_digest():
    assert make_plan().to_json() == make_plan().to_json()
    digests = {make_plan(**change).digest for change in ({}, {"replicas": 3}, {"kwargs": {"a": 1}}, {"spot": True})}
    assert len(digests) == 4


def test_a_plan_survives_its_own_json():
    plan = make_plan(kwargs={"a": [1, 2.5, None, "ü"]}, reruns={"spot": {"max_reruns": 3}})
    assert Plan.from_json(plan.to_json(), "plan") == plan


@pytest.mark.parametrize("damage", [{"version": 2}, {"digest": "short"}])
def test_a_plan_that_is_not_ours_is_refused_by_its_place(damage):
    body = json.dumps({**json.loads(make_plan().to_json()), **damage})
    with pytest.raises(DocumentError, match="s3://bucket/plan cannot be read"):
        Plan.from_json(body, "s3://bucket/plan")


def test_a_request_isolates_nothing_and_leaves_torchs_variables_to_the_launcher():
    request = training_job_request(make_plan(environment={"A": "b"}), 1, 2)
    assert request["EnableNetworkIsolation"] is False
    assert request["ResourceConfig"]["InstanceCount"] == 1
    assert {"RANK", "WORLD_SIZE"}.isdisjoint(request["Environment"])
    assert request["Environment"] == {
        "A": "b",
        "MUSTER_DOCUMENT": "s3://bucket/runs/run/document.json",
        "MUSTER_RUN": "run",
        "MUSTER_RANK": "1",
        "MUSTER_ATTEMPT": "2",
        "MUSTER_REGION": "us-east-1",
        "MUSTER_PROCESSES": "auto",
    }


def test_replicas_of_different_sizes_are_requested_as_their_overrides_say():
    plan = make_plan(instance_count=2, processes=8, overrides={"0": {"instance_count": 1, "processes": "auto"}})
    requests = [training_job_request(plan, rank, 1) for rank in range(2)]
    assert [request["ResourceConfig"]["InstanceCount"] for request in requests] == [1, 2]
    assert [request["Environment"]["MUSTER_PROCESSES"] for request in requests] == ["auto", "8"]


def test_a_program_that_is_no_trainer_starts_its_processes_itself():
    plan = make_plan(trainer=None, entrypoint=["torchrun", "train.py"], instance_count=2)
    request = training_job_request(plan, 0, 1)
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert "MUSTER_PROCESSES" not in request["Environment"]


def test_a_plan_of_a_version_without_processes_keeps_one_in_each_replica():
    stored = json.loads(make_plan().to_json())
    del stored["spec"]["processes"]
    plan = Plan.from_json(json.dumps(stored).encode(), "plan")
    assert "MUSTER_PROCESSES" not in training_job_request(plan, 0, 1)["Environment"]


def test_arguments_of_any_size_travel_in_the_document_not_in_the_request():
    plan = make_plan(kwargs={"text": "x" * 200_000})
    assert len(json.dumps(training_job_request(plan, 0, 1))) < 2_000
    assert RunDocument.of(plan).kwargs == plan.spec.kwargs


def test_the_replicas_document_holds_nothing_of_the_control_plane():
    text = RunDocument.of(make_plan()).to_json().decode()
    assert "arn:" not in text
    assert "control/" not in text


def test_ranks_are_placed_as_their_overrides_say():
    vpc = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}
    reserved = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"
    plan = make_plan(
        replicas=4,
        spot=True,
        max_wait_seconds=90_000,
        vpc_config=vpc,
        overrides={
            "0": {"spot": False, "instance_type": "ml.p5.48xlarge", "training_plan_arn": reserved},
            "1-2": {"vpc_config": {**vpc, "subnets": ["subnet-2"]}},
        },
    )
    plan = Plan.from_json(plan.to_json(), "plan")
    sent = [training_job_request(plan, rank, 1) for rank in range(4)]
    assert [request["EnableManagedSpotTraining"] for request in sent] == [False, True, True, True]
    assert ["MaxWaitTimeInSeconds" in request["StoppingCondition"] for request in sent] == [False, True, True, True]
    assert [request["VpcConfig"]["Subnets"] for request in sent] == [
        ["subnet-1"],
        ["subnet-2"],
        ["subnet-2"],
        ["subnet-1"],
    ]
    assert sent[0]["ResourceConfig"]["TrainingPlanArn"] == reserved
    assert "TrainingPlanArn" not in sent[3]["ResourceConfig"]
