"""The IAM policies of users and deployers, for an administrator to copy. Pure; a test holds them to the guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muster.client.aws.deployed_stack import Stack
from muster.contract.aws.partitions import Locality
from muster.contract.names import TRAINING_LOG_GROUP

_READ_OF_CONTROL = (
    *("rollup/*", "seats.json", "result.json", "lineage.json", "continued_by.json", "plan.json", "report.html"),
)
_READ = ("rendezvous/*", "queue/*", "ended/*", "output/*/model/*", "output/*/model-*.json", "source/*", "recipes/*")
_JOB_ACTIONS = ("StopTrainingJob", "UpdateTrainingJob", "ListTags")
_CHECKED_BY_DEPLOYMENTS = (
    *("cloudformation:DescribeStacks", "cloudformation:GetTemplate", "states:ListStateMachines"),
    *(
        "states:ListExecutions",
        "states:DescribeExecution",
        "scheduler:ListSchedules",
        "sagemaker:ListTrainingJobs",
        "sagemaker:DescribeCluster",
    ),
    *("s3:GetBucketLocation", "s3:GetBucketPolicy", "s3:GetLifecycleConfiguration", "s3:GetBucketNotification"),
    *("kms:GetKeyPolicy", "iam:GetRole", "eks:DescribeCluster", "eks:ListAddons"),
    *("ec2:DescribeSubnets", "ec2:DescribeRouteTables", "ec2:DescribeVpcEndpoints"),
)


def user_policy(stack: Stack) -> dict[str, Any]:
    """What starting, watching and ending runs needs, of this stack's resources; not what `muster deadletters` needs."""
    place = Locality.of_arn(stack.state_machine_arn)

    def arn(service: str, resource: str) -> str:
        return f"{place.arn(service)}:{resource}"

    bucket = f"arn:{place.partition}:s3:::{stack.bucket}"
    control = [f"control/*/{name}" for name in _READ_OF_CONTROL]
    logs = replace(place, region="*") if stack.places else place
    statements = [
        _allow("Stack", ["cloudformation:DescribeStacks"], [arn("cloudformation", f"stack/{stack.name}/*")]),
        _allow("StartRuns", ["states:StartExecution", "states:ListExecutions"], [stack.state_machine_arn]),
        _allow("Runs", ["states:DescribeExecution", "states:StopExecution"], [stack.execution_arn("*")]),
        _allow("Scale", ["events:PutEvents"], [arn("events", f"event-bus/{stack.event_bus or '*'}")]),
        _allow("Logs", ["logs:FilterLogEvents"], [f"{logs.arn('logs')}:log-group:{TRAINING_LOG_GROUP}:*"]),
        _allow("Bucket", ["s3:ListBucket"], [bucket]),
        _allow("ReadRuns", ["s3:GetObject"], [f"{bucket}/{key}" for key in (*_READ, *control)]),
        _allow("Ship", ["s3:PutObject"], [f"{bucket}/source/*", f"{bucket}/recipes/*"]),
        _allow(
            "Jobs",
            [f"sagemaker:{name}" for name in _JOB_ACTIONS],
            [arn("sagemaker", f"training-job/{stack.job_prefix}-*")],
        ),
        # These have no resource level.
        _allow(
            "Lists", ["sagemaker:ListTrainingJobs", "pricing:GetProducts", "servicequotas:ListServiceQuotas"], ["*"]
        ),
    ]
    if stack.key_arn:
        statements.append(_allow("Key", ["kms:Decrypt", "kms:GenerateDataKey"], [stack.key_arn]))
    return {"Version": "2012-10-17", "Statement": statements}


def deployer_policy(place: Locality) -> dict[str, Any]:
    """What `muster deploy` needs where the CDK's own stack is: its roles, which make the resources, and the checks."""
    roles = f"arn:{place.partition}:iam::{place.account}:role/cdk-*-{place.account}-{place.region}"
    statements = [
        _allow("RolesOfTheCdk", ["sts:AssumeRole"], [roles]),
        _allow("Checks", _CHECKED_BY_DEPLOYMENTS, ["*"]),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": [*actions], "Resource": [*resources]}
