"""What a bucket that the stack does not make must have, taken from the bucket that it would make. Pure.

The template of that bucket (muster.infra.rendezvous_bucket) is the only place where its policy, its lifecycle rules and
its notifications are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.contract.aws.partitions import Locality

Json = dict[str, Any]
# Of a lifecycle rule, in CloudFormation's form and in that of S3's calls.
_RULE_MEMBERS = {
    *("Id", "ID", "Status", "Prefix", "Filter", "ExpirationInDays", "Expiration", "ObjectSizeGreaterThan"),
    *("Transitions", "AbortIncompleteMultipartUpload"),
}


@dataclass(frozen=True)
class BucketState:
    """Of a bucket, as S3 answers it: the statements of its policy, its lifecycle rules, its notifications."""

    statements: Sequence[Json] = ()
    rules: Sequence[Json] = ()
    notifications: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Requirements:
    """What the bucket must have, in the form of S3's calls."""

    statements: Sequence[Json]
    rules: Sequence[Json]
    topics: Sequence[Json]

    @classmethod
    def from_template(cls, template: Mapping[str, Any], bucket: str, place: Locality) -> Requirements:
        """The requirements that the template of a stack with one bucket states, for `bucket`."""
        resources = template["Resources"].values()
        [made] = [item["Properties"] for item in resources if item["Type"] == "AWS::S3::Bucket"]
        [policy] = [item["Properties"] for item in resources if item["Type"] == "AWS::S3::BucketPolicy"]
        return cls(
            statements=_resolved(policy["PolicyDocument"]["Statement"], bucket, place),
            rules=[_rule(rule) for rule in made["LifecycleConfiguration"]["Rules"]],
            topics=[
                _topic(_resolved(item, bucket, place))
                for item in made["NotificationConfiguration"]["TopicConfigurations"]
            ],
        )

    def missing_policy(self, state: BucketState) -> Json | None:
        """The bucket's policy completed, as PutBucketPolicy takes it; None where nothing is missing."""
        present = {_canonical(item) for item in state.statements}
        missing = [item for item in self.statements if _canonical(item) not in present]
        if not missing:
            return None
        replaced = {item["Sid"] for item in missing if "Sid" in item}
        kept = [item for item in state.statements if item.get("Sid") not in replaced]
        return {"Version": "2012-10-17", "Statement": [*kept, *missing]}

    def missing_lifecycle(self, state: BucketState) -> Json | None:
        """The bucket's lifecycle rules completed, as PutBucketLifecycleConfiguration takes them; None if complete."""
        present = {_canonical(_without_id(_rule(item))) for item in state.rules}
        missing = [item for item in self.rules if _canonical(_without_id(item)) not in present]
        if not missing:
            return None
        replaced = {item["ID"] for item in missing}
        return {"Rules": [*(item for item in state.rules if item.get("ID") not in replaced), *missing]}

    def missing_notifications(self, state: BucketState) -> Json | None:
        """The bucket's notifications completed, as PutBucketNotificationConfiguration takes them; None if complete."""
        topics = list(state.notifications.get("TopicConfigurations", []))
        present = {_canonical(_without_id(_topic(item))) for item in topics}
        missing = [item for item in self.topics if _canonical(_without_id(item)) not in present]
        if not missing:
            return None
        # S3 refuses two notifications for the same keys: the ones of a stack before this one go.
        filters = {_canonical(item["Filter"]) for item in missing}
        kept = [item for item in topics if _canonical(_topic(item)["Filter"]) not in filters]
        return {**state.notifications, "TopicConfigurations": [*kept, *missing]}


def _resolved(value: Any, bucket: str, place: Locality) -> Any:
    """`value` without intrinsic functions: in the bucket's template they name the bucket or the partition."""
    if isinstance(value, list):
        return [_resolved(item, bucket, place) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        [(function, argument)] = value.items()
        if function == "Fn::GetAtt":
            return f"arn:{place.partition}:s3:::{bucket}"
        if function == "Fn::Join":
            separator, parts = argument
            return str(separator).join(_resolved(part, bucket, place) for part in parts)
        if function == "Ref":
            names = {"Partition": place.partition, "AccountId": place.account, "Region": place.region}
            return names.get(argument.removeprefix("AWS::"), bucket)
    return {key: _resolved(item, bucket, place) for key, item in value.items()}


def _rule(rule: Mapping[str, Any]) -> Json:
    """A lifecycle rule in the form of S3's call, from that form or from CloudFormation's."""
    if rule.keys() - _RULE_MEMBERS:  # a rule of another origin: no rule of ours has these members
        return {"ID": "", **rule}
    days = rule.get("ExpirationInDays") or rule.get("Expiration", {}).get("Days")
    found = {**rule, **rule.get("Filter", {}), **rule.get("Filter", {}).get("And", {})}
    narrowed: Json = {"Prefix": found.get("Prefix") or ""}
    if "ObjectSizeGreaterThan" in found:
        narrowed = {"And": {**narrowed, "ObjectSizeGreaterThan": int(found["ObjectSizeGreaterThan"])}}
    transitions = [
        {"Days": item.get("TransitionInDays") or item.get("Days"), "StorageClass": item["StorageClass"]}
        for item in rule.get("Transitions", [])
    ]
    return {
        "ID": rule.get("Id") or rule.get("ID", ""),
        "Status": rule["Status"],
        "Filter": narrowed,
        **({"Expiration": {"Days": days}} if days else {}),
        **({"Transitions": transitions} if transitions else {}),
        **{key: rule[key] for key in ("AbortIncompleteMultipartUpload",) if key in rule},
    }


def _topic(item: Mapping[str, Any]) -> Json:
    """A notification in the form of S3's call, from that form or from CloudFormation's."""
    events = item.get("Events") or [item["Event"]]
    key = item.get("Filter", {}).get("S3Key") or item.get("Filter", {}).get("Key") or {}
    found = key.get("Rules") or key.get("FilterRules") or []
    rules = sorted(
        ({"Name": rule["Name"].lower(), "Value": rule["Value"]} for rule in found), key=lambda rule: rule["Name"]
    )
    return {
        "TopicArn": item.get("TopicArn") or item["Topic"],
        "Events": sorted(events),
        "Filter": {"Key": {"FilterRules": rules}},
    }


def _without_id(item: Mapping[str, Any]) -> Json:
    return {key: value for key, value in item.items() if key not in {"ID", "Id"}}


def _canonical(value: Any) -> str:
    """The same text for values that S3 takes for the same: in any order, numbers as text, one value as a list of it."""

    def ordered(inner: Any) -> Any:
        if isinstance(inner, Mapping):
            return {key: ordered(item) for key, item in inner.items()}
        if isinstance(inner, list):
            items = sorted((ordered(item) for item in inner), key=lambda item: json.dumps(item, sort_keys=True))
            return items[0] if len(items) == 1 and not isinstance(items[0], Mapping) else items
        return inner if isinstance(inner, str) else json.dumps(inner)

    return json.dumps(ordered(value), sort_keys=True)
