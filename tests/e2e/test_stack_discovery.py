"""The stack that a client means where none is named."""

from __future__ import annotations

import json

import pytest

from muster import Muster
from muster.client.errors import SeveralStacksError, StackNotFoundError
from tests.support.workshop import Workshop, turn_to

OUTPUTS = ("StateMachineArn", "BucketName", "JobPrefix", "ReplicaRoleArn")


def deploy(workshop: Workshop, region: str, name: str, *outputs: str) -> None:
    """A stack with these outputs, in a region of its own for each test."""
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {output: {"Value": f"{output}-of-{name.lower()}"} for output in outputs},
    }
    client = workshop.cloud.client("cloudformation", region_name=region)
    client.create_stack(StackName=name, TemplateBody=json.dumps(template))
    client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 0.05})


@pytest.fixture
def place(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    turn_to(monkeypatch, workshop.cloud)
    return workshop


def test_without_a_name_the_only_stack_of_muster_is_meant(place: Workshop) -> None:
    deploy(place, "eu-west-1", "Database", "BucketName")
    with pytest.raises(StackNotFoundError, match="no stack named Muster in eu-west-1"):
        _ = Muster(region="eu-west-1").bucket
    deploy(place, "eu-west-1", "Team-A", *OUTPUTS)
    assert Muster(region="eu-west-1").bucket == "BucketName-of-team-a"
    assert Muster(region="eu-west-1").stack == "Team-A"


def test_the_stack_of_the_default_name_comes_first_and_a_named_one_before_it(place: Workshop) -> None:
    for name in ("Team-A", "Muster", "Team-B"):
        deploy(place, "eu-north-1", name, *OUTPUTS)
    assert Muster(region="eu-north-1").stack == "Muster"
    assert Muster("Team-B", region="eu-north-1").bucket == "BucketName-of-team-b"


def test_several_stacks_are_named(place: Workshop) -> None:
    for name in ("Team-B", "Team-A"):
        deploy(place, "ap-south-1", name, *OUTPUTS)
    with pytest.raises(SeveralStacksError, match=r"ap-south-1: Team-A, Team-B\. Select one with --stack"):
        _ = Muster(region="ap-south-1").bucket
