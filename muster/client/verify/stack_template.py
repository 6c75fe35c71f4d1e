"""A deployed template whose references are resolved to the physical names of the stack's resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What Fn::GetAtt Arn is, by the resource's type; `{}` is the physical name, the rest are parts of the stack's own ARN.
_ARNS = {
    "AWS::Events::EventBus": "arn:{Partition}:events:{Region}:{AccountId}:event-bus/{}",
    "AWS::Events::Rule": "arn:{Partition}:events:{Region}:{AccountId}:rule/{}",
    "AWS::IAM::Role": "arn:{Partition}:iam::{AccountId}:role/{}",
    "AWS::Lambda::Function": "arn:{Partition}:lambda:{Region}:{AccountId}:function:{}",
    "AWS::Logs::LogGroup": "arn:{Partition}:logs:{Region}:{AccountId}:log-group:{}:*",
    "AWS::S3::Bucket": "arn:{Partition}:s3:::{}",
    "AWS::SQS::Queue": "arn:{Partition}:sqs:{Region}:{AccountId}:{}",
}
_LOGICAL = re.compile(r"^(?P<words>.+?)(?:HandlerRole|HandlerFunction|Role)?[0-9A-F]{8}$")


@dataclass(frozen=True)
class Statement:
    """One statement of a role's policy, with its resources resolved."""

    role: str
    """The role's short name: `Attempt`, `Replica`."""
    role_arn: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, Any]]


class StackTemplate:
    """The resources of a template, with resolved properties."""

    def __init__(
        self, resources: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], place: Mapping[str, str]
    ) -> None:
        self._resources = resources
        self._names = names
        self.partition = place["Partition"]
        self._place = place

    @classmethod
    def read(cls, body: Any, names: Mapping[str, str], place: Mapping[str, str]) -> StackTemplate:
        """The template in an answer of GetTemplate; `names` are the physical names by logical id.

        `place` holds the stack's Partition, Region and AccountId.
        """
        document = json.loads(body) if isinstance(body, str) else body
        return cls(document["Resources"], names, place)

    def of_type(self, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Logical id, physical name and resolved properties of every resource of a type."""
        for logical, resource in self._resources.items():
            if resource["Type"] == kind and logical in self._names:
                properties = self._resolved(resource.get("Properties", {}))
                yield logical, self._names[logical], properties

    def arns(self, kind: str) -> dict[str, str]:
        """The ARNs of every resource of a type, by short name."""
        found = {short_name(logical): self._arn(logical) for logical, _, _ in self.of_type(kind)}
        return {name: arn for name, arn in found.items() if arn is not None}

    def statements(self) -> Iterator[Statement]:
        """Every statement that allows something to a role of the stack."""
        for logical, _, properties in self.of_type("AWS::IAM::Role"):
            for policy in properties.get("Policies", []):
                yield from self._statements(logical, policy["PolicyDocument"])
        for resource in self._resources.values():
            if resource["Type"] != "AWS::IAM::Policy":
                continue
            document = self._resolved(resource["Properties"]["PolicyDocument"])
            for role in resource["Properties"].get("Roles", []):
                if role.get("Ref") in self._names:
                    yield from self._statements(role["Ref"], document)

    def _statements(self, role: str, document: Mapping[str, Any]) -> Iterator[Statement]:
        arn = self._arn(role)
        for statement in document["Statement"]:
            if statement["Effect"] == "Allow" and arn is not None:
                actions, resources = _many(statement["Action"]), _many(statement["Resource"])
                yield Statement(short_name(role), arn, actions, resources, statement.get("Condition", {}))

    def _resolved(self, value: Any) -> Any:
        """`value` without intrinsic functions; one that is not known becomes a readable placeholder."""
        if isinstance(value, list):
            return [self._resolved(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            [(name, argument)] = value.items()
            function = {"Ref": self._reference, "Fn::GetAtt": self._attribute, "Fn::Sub": self._substituted}.get(name)
            if function is not None:
                return function(argument)
            if name == "Fn::Join":
                return argument[0].join(str(self._resolved(part)) for part in argument[1])
        return {key: self._resolved(item) for key, item in value.items()}

    def _reference(self, logical: str) -> str:
        if logical.startswith("AWS::"):
            return self._place.get(logical.removeprefix("AWS::"), f"<{logical}>")
        return self._names.get(logical, f"<{logical}>")

    def _attribute(self, argument: Any) -> str:
        logical, attribute = argument if isinstance(argument, list) else argument.split(".", 1)
        if attribute in {"Arn", "TopicArn"}:
            return self._arn(logical) or f"<{logical}.{attribute}>"
        # The name of a state machine ends its ARN, which is its physical name.
        return self._names.get(logical, f"<{logical}>").rpartition(":")[2]

    def _arn(self, logical: str) -> str | None:
        name = self._names.get(logical)
        if name is None:
            return None
        if name.startswith("arn:"):
            return name
        pattern = _ARNS.get(self._resources[logical]["Type"])
        # The physical name of a queue is its URL.
        return (
            None
            if pattern is None
            else pattern.format(name.rpartition("/")[2] if "://" in name else name, **self._place)
        )

    def _substituted(self, argument: Any) -> str:
        text, values = argument if isinstance(argument, list) else (argument, {})

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name in values:
                return str(self._resolved(values[name]))
            if "." in name:
                return self._attribute(name)
            return self._reference(name)

        return re.sub(r"\$\{([\w:.]+)\}", value, text).replace("${!", "${")


def short_name(logical: str) -> str:
    """The words of a logical id: `Attempt` of the function `AttemptHandlerFunction61DEF703` and of its role."""
    found = _LOGICAL.match(logical)
    return found["words"] if found else logical


def _many(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
