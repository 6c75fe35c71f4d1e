"""What AWS allows for sums that no single setting exceeds: policies, environments, inputs, the template. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from muster.contract.errors import Problem

# IAM and STS quotas: Role inline policy size; it does not count white space.
INLINE_POLICIES_MAX = 10_240
# Lambda quotas: Environment variables.
ENVIRONMENT_MAX = 4_096
# Amazon SQS policy quotas: Bytes, Statements.
QUEUE_POLICY_MAX, QUEUE_STATEMENTS_MAX = 8_192, 20
# EventBridge: InputTransformer, InputTemplate.
INPUT_MAX = 8_192
# S3: Bucket policies.
BUCKET_POLICY_MAX = 20_480
# CloudFormation quotas: Template body size in an S3 object.
TEMPLATE_MAX = 1_000_000
# What CloudFormation puts in, at most about.
_PSEUDO = {"AWS::AccountId": 12, "AWS::Region": 14, "AWS::Partition": 10, "AWS::URLSuffix": 16}
_REFERENCE_MAX = 120

Template = Mapping[str, Any]


def oversized(template: Template) -> list[Problem]:
    """Each sum above its limit."""
    body = len(json.dumps(template).encode())
    sums = [*_sums(template.get("Resources", {})), ("the template", "bytes", body, TEMPLATE_MAX)]
    remedy = "use fewer or shorter values in the settings: data, policies, tags, schedules; or a second stack"
    return [
        Problem(place, f"{found:,} {unit}", remedy, f"at most {allowed:,}, a limit of AWS")
        for place, unit, found, allowed in sums
        if found > allowed
    ]


def _sums(resources: Template) -> Iterator[tuple[str, str, int, int]]:
    inline: dict[str, int] = defaultdict(int)
    for name, resource in resources.items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind == "AWS::IAM::Role":
            inline[name] += sum(_length(item["PolicyDocument"]) for item in properties.get("Policies", ()))
        elif kind == "AWS::IAM::Policy":
            for role in properties.get("Roles", ()):
                inline[role["Ref"]] += _length(properties["PolicyDocument"])
        elif kind == "AWS::Lambda::Function":
            yield f"the environment of {name}", "bytes", _length(properties.get("Environment", {})), ENVIRONMENT_MAX
        elif kind == "AWS::SQS::QueuePolicy":
            document = properties["PolicyDocument"]
            yield f"{name}", "statements", len(document["Statement"]), QUEUE_STATEMENTS_MAX
            yield f"{name}", "bytes", _length(document), QUEUE_POLICY_MAX
        elif kind == "AWS::S3::BucketPolicy":
            yield f"{name}", "bytes", _length(properties["PolicyDocument"]), BUCKET_POLICY_MAX
        elif kind == "AWS::Events::Rule":
            for target in properties.get("Targets", ()):
                transformer = target.get("InputTransformer", {"InputTemplate": ""})
                yield f"the input of {name}", "characters", _length(transformer["InputTemplate"]) - 2, INPUT_MAX
    for name, found in inline.items():
        yield f"the policies of {name}", "characters", found, INLINE_POLICIES_MAX


def _length(value: object) -> int:
    """The length as JSON without white space, and with the longest that references may become."""
    if isinstance(value, Mapping):
        if value.keys() == {"Ref"}:
            return _PSEUDO.get(value["Ref"], _REFERENCE_MAX) + 2
        if value.keys() == {"Fn::Join"}:
            separator, parts = value["Fn::Join"]
            return sum(_length(part) - 2 for part in parts) + len(separator) * (len(parts) - 1) + 2
        if any(key.startswith("Fn::") for key in value):
            return _REFERENCE_MAX + 2
        return sum(len(json.dumps(key)) + 1 + _length(item) for key, item in value.items()) + max(1, len(value)) + 1
    if isinstance(value, list | tuple):
        return sum(map(_length, value)) + max(1, len(value)) + 1
    return len(json.dumps(value))
