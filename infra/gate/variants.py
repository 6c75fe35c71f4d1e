"""The variants of the stack that the gate looks at, and a template's values in a partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ACCOUNT = "123456789012"

VARIANTS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    # Everything that a deployment can add.
    "full": {
        "replica_image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/training:7",
        "replica_instance_type": "ml.g5.2xlarge",
        "replica_vpc": {"subnets": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]},
        "replica_kms_key_arn": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555",
        "replica_tags": {"team": "research"},
        "bucket_name": "muster-gate",
        "notify_email": "team@example.com",
        "max_concurrent_replicas": 100,
        "schedules": {"nightly": {"at": "cron(0 3 * * ? *)", "spec_key": "inbox/nightly.yaml"}},
    },
    # Everything that a deployment can leave out or bring itself.
    "least": {
        "replica_role_arn": f"arn:aws:iam::{ACCOUNT}:role/replicas",
        "sweep_hours": 0,
        "health_alarms": False,
        "dashboard": False,
    },
}
"""The settings of each variant."""


@dataclass(frozen=True)
class Place:
    """A region, and what CloudFormation's pseudo parameters are there."""

    partition: str
    region: str
    url_suffix: str

    def pseudo(self) -> dict[str, str]:
        """The pseudo parameters."""
        return {
            "AWS::Partition": self.partition,
            "AWS::Region": self.region,
            "AWS::AccountId": ACCOUNT,
            "AWS::URLSuffix": self.url_suffix,
        }


PLACES = (
    Place("aws", "us-east-1", "amazonaws.com"),
    Place("aws-us-gov", "us-gov-west-1", "amazonaws.com"),
    Place("aws-cn", "cn-north-1", "amazonaws.com.cn"),
)
"""One region of each partition."""

# The ARN of a resource behind arn:PARTITION:, where roles' policies name it.
_ARNS = {
    "AWS::Events::EventBus": "events:{region}:{account}:event-bus/{name}",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::SNS::Topic": "sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
    "AWS::StepFunctions::StateMachine": "states:{region}:{account}:stateMachine:{name}",
}
_REF_IS_ARN = ("AWS::SNS::Topic", "AWS::StepFunctions::StateMachine")


class Resolved:
    """A template with its intrinsic functions evaluated for one place; a resource's name is its logical id."""

    def __init__(self, template: Mapping[str, Any], place: Place) -> None:
        self.resources: Mapping[str, Mapping[str, Any]] = template["Resources"]
        self._mappings = template.get("Mappings", {})
        self._place = place

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """The properties of each resource of a type, by logical id."""
        return {
            name: self.value(resource.get("Properties", {}))
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def value(self, value: Any) -> Any:
        """`value` without intrinsic functions.

        Raises:
            NotImplementedError: it has one that the stack did not use so far.
        """
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        [name, *others] = value or [""]
        if not others and (name == "Ref" or name.startswith("Fn::")):
            return self._call(name, value[name])
        return {key: self.value(item) for key, item in value.items()}

    def _call(self, function: str, argument: Any) -> Any:
        match function:
            case "Ref":
                pseudo = self._place.pseudo()
                return pseudo[argument] if argument in pseudo else self._physical(argument, "Ref")
            case "Fn::GetAtt":
                return self._physical(*argument)
            case "Fn::Join":
                separator, parts = argument
                return str(separator).join(map(str, self.value(parts)))
            case "Fn::Sub":
                return re.sub(r"\$\{([^}]+)\}", lambda found: str(self._call("Ref", found[1])), argument)
            case "Fn::FindInMap":
                name, first, second = self.value(argument)
                return self._mappings[name][first][second]
            case _:
                message = f"the gate does not evaluate {function} yet"
                raise NotImplementedError(message)

    def _physical(self, logical_id: str, attribute: str) -> str:
        kind = self.resources[logical_id]["Type"]
        name = logical_id.lower() if kind == "AWS::S3::Bucket" else logical_id
        if kind not in _ARNS or (attribute == "Ref" and kind not in _REF_IS_ARN) or attribute not in ("Arn", "Ref"):
            return name if attribute == "Ref" else f"{name}.{attribute}"
        arn = _ARNS[kind].format(region=self._place.region, account=ACCOUNT, name=name)
        return f"arn:{self._place.partition}:{arn}"
