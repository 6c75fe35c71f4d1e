"""What the policies of the deployment's key and of its own roles must allow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from muster.contract.aws.partitions import Locality

Statement = Mapping[str, Any]
_USE = ["kms:Decrypt", "kms:GenerateDataKey*"]


def key_statements(place: Locality) -> list[dict[str, Any]]:
    """The statements: the account's roles, CloudWatch Logs, and the services that publish to topics and queues."""
    return [
        {
            "Sid": "RolesOfTheAccountByTheirPolicies",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:{place.partition}:iam::{place.account}:root"},
            "Action": ["kms:CreateGrant", "kms:DescribeKey", *_USE],
            "Resource": "*",
        },
        {
            "Sid": "LogGroupsOfTheAccount",
            "Effect": "Allow",
            "Principal": {"Service": f"logs.{place.region}.{place.dns_suffix}"},
            "Action": ["kms:Decrypt", "kms:Describe*", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            "Resource": "*",
            "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"{place.arn('logs')}:log-group:*"}},
        },
        {
            "Sid": "TopicsAndQueuesOfTheAccount",
            "Effect": "Allow",
            "Principal": {"Service": ["cloudwatch.amazonaws.com", "s3.amazonaws.com", "sns.amazonaws.com"]},
            "Action": list(_USE),
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:SourceAccount": place.account}},
        },
        {
            # EventBridge supports no condition on the source with an encrypted queue.
            "Sid": "DeadLettersOfEventBridge",
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": list(_USE),
            "Resource": "*",
        },
    ]


def role_trust(place: Locality) -> dict[str, Any]:
    """The statement in the trust policy of a role for replicas: jobs are created with session tags."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": {"aws:SourceAccount": place.account}},
    }


def missing_statements(policy: Statement, place: Locality) -> list[dict[str, Any]]:
    """The statements that the policy lacks."""
    return [wanted for wanted in key_statements(place) if not statement_is_held(policy, wanted)]


def statement_is_held(policy: Statement, wanted: Statement) -> bool:
    """Whether `policy` allows the actions of `wanted` to its principals; conditions and resources are not compared."""
    allowed = [item for item in _list(policy.get("Statement")) if item.get("Effect") == "Allow"]
    return all(
        any({principal, "*"} & {*_principals(item)} and _matches(action, item) for item in allowed)
        for principal in _principals(wanted)
        for action in _list(wanted.get("Action"))
    )


def _matches(action: str, statement: Statement) -> bool:
    return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in _list(statement.get("Action")))


def _principals(statement: Statement) -> list[str]:
    principal = statement.get("Principal", {})
    if isinstance(principal, str):
        return [principal]
    return [str(item) for items in principal.values() for item in _list(items)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
