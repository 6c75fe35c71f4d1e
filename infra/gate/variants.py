"""The variants of the stack that the gate looks at, and a template's values in a partition."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from muster.contract.aws.partitions import Locality
from muster.infra.settings.settings_file import Tables

ACCOUNT = "123456789012"

_KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"

VARIANTS: Mapping[str, Tables] = {
    "default": {},
    # Everything that a deployment can add.
    "full": {
        "stack": {
            "kms_key_arn": _KEY,
            "permissions_boundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
            "tags": {"team": "research"},
        },
        "bucket": {"name": "muster-gate", "access_logs_bucket": "logs-gate", "access_logs_prefix": "muster/"},
        "replicas": {
            "image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/training:7",
            "instance_type": "ml.g5.2xlarge",
            "vpc": {"subnets": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]},
            "tags": {"team": "research"},
        },
        "runs": {"max_concurrent_replicas": 100, "snap_start": True},
        "notify": {"email": "team@example.com"},
        "schedules": {"nightly": {"at": "cron(0 3 * * ? *)", "spec_key": "inbox/nightly.yaml"}},
    },
    # Replicas on clusters, one of which only its VPC reaches.
    "clusters": {
        "stack": {"kms_key_arn": _KEY},
        "replicas": {"data": ["s3://team-data/sets/"]},
        "hyperpod_clusters": {
            "research": {
                "eks_cluster": "research-eks",
                "namespaces": ["team-a", "team-b"],
                "subnets": ["subnet-0a1b2c3d"],
                "security_group_ids": ["sg-0a1b2c3d"],
            },
            "prod": {"eks_cluster": "prod-eks", "namespaces": ["default"]},
        },
    },
    # Everything that a deployment can leave out or bring itself.
    "least": {
        "bucket": {"existing": "bucket-of-ours"},
        "replicas": {"role_arn": f"arn:aws:iam::{ACCOUNT}:role/replicas"},
        "runs": {"sweep_hours": 0},
        "watch": {"health_alarms": False, "dashboard": False},
    },
}
"""The settings of each variant."""

PLACES = (
    Locality("aws", "us-east-1", ACCOUNT),
    Locality("aws-us-gov", "us-gov-west-1", ACCOUNT),
    Locality("aws-cn", "cn-north-1", ACCOUNT),
)
"""One region of each partition."""

# The ARN of a resource behind arn:PARTITION:, where roles' policies name it.
_ARNS = {
    "AWS::Events::EventBus": "events:{region}:{account}:event-bus/{name}",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
    "AWS::Lambda::Alias": "lambda:{region}:{account}:function:{name}:live",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::SNS::Topic": "sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
    "AWS::StepFunctions::StateMachine": "states:{region}:{account}:stateMachine:{name}",
}
_REF_IS_ARN = ("AWS::Lambda::Alias", "AWS::SNS::Topic", "AWS::StepFunctions::StateMachine")


class Resolved:
    """A template with its intrinsic functions evaluated for one place; a resource's name is its logical id."""

    def __init__(self, template: Mapping[str, Any], place: Locality) -> None:
        self.resources: Mapping[str, Mapping[str, Any]] = template["Resources"]
        self._mappings = template.get("Mappings", {})
        self._conditions = template.get("Conditions", {})
        self._place = place
        self._pseudo = {
            "AWS::Partition": place.partition,
            "AWS::Region": place.region,
            "AWS::AccountId": place.account,
            "AWS::URLSuffix": place.dns_suffix,
        }

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
        functions: Mapping[str, Callable[[Any], Any]] = {
            "Ref": lambda name: self._pseudo.get(name) or self._physical(name, "Ref"),
            "Fn::GetAtt": lambda pair: self._physical(*pair),
            "Fn::Join": lambda pair: str(pair[0]).join(map(str, self.value(pair[1]))),
            "Fn::Sub": lambda text: re.sub(r"\$\{([^}]+)\}", lambda found: str(self._call("Ref", found[1])), text),
            "Fn::If": lambda three: self.value(three[1] if self.value(self._conditions[three[0]]) else three[2]),
            "Fn::Equals": lambda pair: operator.eq(*self.value(pair)),
            "Fn::Or": lambda several: any(self.value(several)),
            "Fn::FindInMap": lambda keys: reduce(operator.getitem, self.value(keys), self._mappings),
        }
        if function not in functions:
            message = f"the gate does not evaluate {function} yet"
            raise NotImplementedError(message)
        return functions[function](argument)

    def _physical(self, logical_id: str, attribute: str) -> str:
        kind = self.resources[logical_id]["Type"]
        name = logical_id.lower() if kind == "AWS::S3::Bucket" else logical_id
        if kind not in _ARNS or (attribute == "Ref" and kind not in _REF_IS_ARN) or attribute not in ("Arn", "Ref"):
            return name if attribute == "Ref" else f"{name}.{attribute}"
        arn = _ARNS[kind].format(region=self._place.region, account=self._place.account, name=name)
        return f"arn:{self._place.partition}:{arn}"
