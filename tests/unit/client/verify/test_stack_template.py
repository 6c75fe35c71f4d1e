"""A deployed template with resolved references."""

from __future__ import annotations

from typing import Any

import pytest

from muster.client.verify.stack_template import StackTemplate, short_name

PLACE = {"Partition": "aws-us-gov", "Region": "us-gov-west-1", "AccountId": "123456789012"}
ROLE_ARN = "arn:aws-us-gov:iam::123456789012:role/Muster-Attempt-1"


def template(*statements: dict[str, Any]) -> StackTemplate:
    bucket = {"Fn::GetAtt": ["Bucket31D196D2", "Arn"]}
    policy = {"PolicyName": "x", "PolicyDocument": {"Statement": list(statements)}}
    listing = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket}
    body = {
        "Resources": {
            "Bucket31D196D2": {"Type": "AWS::S3::Bucket"},
            "QueueAAAAAAAA": {"Type": "AWS::SQS::Queue"},
            "WorkflowBBBBBBBB": {"Type": "AWS::StepFunctions::StateMachine"},
            "AttemptHandlerRole0172EDA3": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [policy]}},
            "More11111111": {
                "Type": "AWS::IAM::Policy",
                "Properties": {
                    "Roles": [{"Ref": "AttemptHandlerRole0172EDA3"}],
                    "PolicyDocument": {"Statement": [listing]},
                },
            },
        }
    }
    names = {
        "Bucket31D196D2": "the-bucket",
        "QueueAAAAAAAA": "https://sqs.us-gov-west-1.amazonaws.com/123456789012/letters",
        "WorkflowBBBBBBBB": "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:Runs",
        "AttemptHandlerRole0172EDA3": "Muster-Attempt-1",
        "More11111111": "x",
    }
    return StackTemplate.read(body, names, PLACE)


@pytest.mark.parametrize(
    ("reference", "resolved"),
    [
        ({"Ref": "Bucket31D196D2"}, "the-bucket"),
        ({"Ref": "AWS::Region"}, "us-gov-west-1"),
        ({"Fn::GetAtt": ["Bucket31D196D2", "Arn"]}, "arn:aws-us-gov:s3:::the-bucket"),
        ({"Fn::GetAtt": "Bucket31D196D2.Arn"}, "arn:aws-us-gov:s3:::the-bucket"),
        ({"Fn::GetAtt": ["QueueAAAAAAAA", "Arn"]}, "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:letters"),
        ({"Fn::GetAtt": ["WorkflowBBBBBBBB", "Name"]}, "Runs"),
        ({"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket31D196D2", "Arn"]}, "/x/*"]]}, "arn:aws-us-gov:s3:::the-bucket/x/*"),
        (
            {"Fn::Sub": "arn:${AWS::Partition}:x:${Bucket31D196D2.Arn}"},
            "arn:aws-us-gov:x:arn:aws-us-gov:s3:::the-bucket",
        ),
        ({"Fn::Sub": ["${a}/${!aws:x}", {"a": "b"}]}, "b/${aws:x}"),
        ({"Ref": "Nothing"}, "<Nothing>"),
    ],
)
def test_a_reference_is_resolved(reference: Any, resolved: str) -> None:
    [statement, _] = template({"Effect": "Allow", "Action": "x:Y", "Resource": reference}).statements()
    assert statement.resources == (resolved,)


def test_a_role_has_the_statements_of_its_own_and_of_other_policies() -> None:
    denied = {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}
    found = list(template({"Effect": "Allow", "Action": ["a:B", "c:D"], "Resource": "*"}, denied).statements())
    assert [(item.role, item.role_arn, item.actions) for item in found] == [
        ("Attempt", ROLE_ARN, ("a:B", "c:D")),
        ("Attempt", ROLE_ARN, ("s3:ListBucket",)),
    ]


def test_a_resource_is_named_by_the_words_of_its_logical_id() -> None:
    names = (
        "AttemptHandlerRole0172EDA3",
        "AttemptHandlerFunction61DEF703",
        "ReplicaRoleFF8742CD",
        "TimerScheduler355DA6F1",
        "Own",
    )
    assert [short_name(name) for name in names] == ["Attempt", "Attempt", "Replica", "TimerScheduler", "Own"]


def test_the_arns_of_a_type_are_found_by_name() -> None:
    assert template().arns("AWS::IAM::Role") == {"Attempt": ROLE_ARN}
