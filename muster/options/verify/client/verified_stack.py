"""The stack in its account, as a verification asks about it: what may not be asked names the permission that lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from botocore.config import Config
from botocore.exceptions import ClientError as AwsError

from muster.client.aws.cloud import Cloud
from muster.client.aws.connection import CONFIG
from muster.client.aws.deployed_stack import outputs_of
from muster.client.aws.error_translation import error_code, translated
from muster.client.client_errors import ClientError, DeniedError
from muster.contract.spec.stack_defaults import StackDefaults
from muster.options.verify.client.check_outcomes import Check, CheckOutcome, check

# IAM limits the rate of its calls and does not publish the limit; a verification makes some two hundred simulations.
# Other users of the account call FilterLogEvents too.
_LIMITED = {"iam", "logs"}
_PATIENT = CONFIG.merge(Config(retries={"mode": "adaptive", "total_max_attempts": 8}))
_NOT_THERE = re.compile("NoSuch|NotFound")
# IAM's names of actions, where they are not those of the operations.
_ACTIONS = {
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "s3:HeadBucket": "s3:ListBucket",
}
# What Fn::GetAtt Arn is, by the resource's type; `{}` is the physical name.
_ARNS = {
    "AWS::Events::EventBus": "arn:{Partition}:events:{Region}:{AccountId}:event-bus/{}",
    "AWS::IAM::Role": "arn:{Partition}:iam::{AccountId}:role/{}",
    "AWS::Lambda::Function": "arn:{Partition}:lambda:{Region}:{AccountId}:function:{}",
    "AWS::Logs::LogGroup": "arn:{Partition}:logs:{Region}:{AccountId}:log-group:{}:*",
    "AWS::S3::Bucket": "arn:{Partition}:s3:::{}",
    "AWS::SQS::Queue": "arn:{Partition}:sqs:{Region}:{AccountId}:{}",
}
_LOGICAL = re.compile(r"(.+?)(?:HandlerRole|Role)?[0-9A-F]{8}")


class UncheckedError(ClientError):
    """Something cannot be checked. `remedy` is what would make it possible."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


def made(names: Sequence[str], checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The checks `names`: those that cannot be made, because AWS was not reached or refused, are unchecked."""
    left = dict.fromkeys(names)
    try:
        for one in checks():
            left.pop(one.name, None)
            yield one
    except ClientError as error:
        yield from (check(name, CheckOutcome.UNCHECKED, str(error), getattr(error, "remedy", "")) for name in left)


def statement_text(
    actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Any] | None = None
) -> str:
    """An IAM statement that allows `actions`, as JSON to be pasted into a policy."""
    more = {"Condition": conditions} if conditions else {}
    return json.dumps({"Effect": "Allow", "Action": list(actions), "Resource": list(resources), **more})


class Account:
    """One stack in its account and region, with one session's credentials."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud, self.session, self.region = cloud, cloud.session, str(cloud.session.region_name)
        self._clients: dict[str, Any] = {"s3": cloud.connection.s3}

    def client(self, service: str) -> Any:
        """The client of a service."""
        if service not in self._clients:
            self._clients[service] = self.cloud.connection.client(service, _PATIENT if service in _LIMITED else None)
        return self._clients[service]

    def ask(self, service: str, operation: str, **arguments: object) -> Any:
        """What AWS answers; empty where there is no such thing. Raises what `answer` raises."""
        try:
            return self.answer(service, lambda: getattr(self.client(service), operation)(**arguments), arguments)
        except ClientError as error:
            if isinstance(error.__cause__, AwsError) and _NOT_THERE.search(error_code(error.__cause__)):
                return {}
            raise

    def listed(self, service: str, operation: str, key: str, **arguments: object) -> list[Any]:
        """All `key` of the pages of an answer. Raises what `answer` raises."""

        def read() -> list[Any]:
            pages = self.client(service).get_paginator(operation).paginate(**arguments)
            return [item for page in pages for item in page.get(key, ())]

        return list(self.answer(service, read, arguments))

    def answer(self, service: str, call: Callable[[], Any], arguments: Mapping[str, object] | None = None) -> Any:
        """What `call` returns, which asks `service` with `arguments`.

        Raises:
            UncheckedError: these credentials do not allow it.
            ClientError: AWS cannot be reached or refuses for another reason.
        """
        try:
            with translated():
                return call()
        except DeniedError as error:
            named: Any = error.__cause__
            action = f"{self.client(service).meta.service_model.signing_name}:{named.operation_name}"
            action, texts = _ACTIONS.get(action, action), [str(value) for value in (arguments or {}).values()]
            arn = next((text for text in texts if text.startswith("arn:")), "*")
            if arguments and "Bucket" in arguments:
                arn = f"arn:*:s3:::{arguments['Bucket']}{'/*' * action.endswith('Object')}"
            reason = f"These credentials are not allowed to call {action}."
            raise UncheckedError(reason, statement_text([action], [arn])) from error

    @cached_property
    def identity(self) -> Any:
        """Whose credentials these are: Account and Arn. Needs no permission."""
        return self.ask("sts", "get_caller_identity")

    @property
    def partition(self) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`."""
        return str(self.identity["Arn"].split(":")[1])

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource in the stack's account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.identity['Account']}:{resource}"

    @cached_property
    def description(self) -> Any:
        """What CloudFormation says of the stack."""
        return self.ask("cloudformation", "describe_stacks", StackName=self.cloud.stack.name)["Stacks"][0]

    def output(self, name: str) -> str:
        """One of the stack's outputs; without it, UncheckedError is raised."""
        if value := outputs_of(self.description).get(name):
            return value
        reason = f"The stack has no output {name}."
        raise UncheckedError(reason, "Deploy the stack again.")

    @property
    def defaults(self) -> StackDefaults:
        """What replicas have unless their spec says otherwise."""
        return StackDefaults.from_json(self.cloud.stack.defaults, "the output ReplicaDefaults")

    @cached_property
    def template(self) -> StackTemplate:
        """The template that was deployed, with the physical names of its resources."""
        name = self.cloud.stack.name
        body = self.ask("cloudformation", "get_template", StackName=name, TemplateStage="Processed")["TemplateBody"]
        found = self.listed("cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=name)
        names = {item["LogicalResourceId"]: item.get("PhysicalResourceId", "") for item in found}
        _, partition, _, region, account, *_ = self.description["StackId"].split(":")
        place = {"Partition": partition, "Region": region, "AccountId": account}
        return StackTemplate((json.loads(body) if isinstance(body, str) else body)["Resources"], names, place)


FreeChecks = Mapping[tuple[str, ...], Callable[[Account], Iterator[Check]]]
"""Checks that cost nothing, by their names."""


@dataclass(frozen=True)
class OfferedChecks:
    """What another option checks of a stack: its `OFFER` for the seam `client.checks`."""

    of: Callable[[Account], FreeChecks]


class Statement(NamedTuple):
    """One statement of a role's policy in the deployed template. `role` is its short name: `Attempt`, `Replica`."""

    role: str
    role_arn: str
    actions: Sequence[str]
    resources: Sequence[str]
    conditions: Mapping[str, Mapping[str, Any]]


class StackTemplate:
    """The resources of a template; references in their properties are resolved to the `names` of what was made."""

    def __init__(self, resources: Mapping[str, Any], names: Mapping[str, str], place: Mapping[str, str]) -> None:
        self._resources, self._names, self._place = resources, names, place

    def of_type(self, kind: str) -> list[tuple[str, str, Any]]:
        """Logical id, physical name and resolved properties of every resource of a type."""
        return [
            (logical, self._names[logical], self._resolved(resource.get("Properties", {})))
            for logical, resource in self._resources.items()
            if resource["Type"] == kind and self._names.get(logical)
        ]

    def statements(self) -> Iterator[Statement]:
        """Every statement that allows something to a role of the stack."""
        roles = self.of_type("AWS::IAM::Role")
        documents = [(logical, one["PolicyDocument"]) for logical, _, role in roles for one in role.get("Policies", ())]
        for logical, _, policy in self.of_type("AWS::IAM::Policy"):
            documents += [
                (role["Ref"], policy["PolicyDocument"]) for role in self._resources[logical]["Properties"]["Roles"]
            ]
        for logical, document in documents:
            named = _LOGICAL.fullmatch(logical)
            role = (named[1] if named else logical, self._arn(logical))
            for item in document["Statement"]:
                if item["Effect"] == "Allow":
                    yield Statement(*role, many(item["Action"]), many(item["Resource"]), item.get("Condition", {}))

    def _resolved(self, value: Any) -> Any:
        match value:
            case {"Ref": str(name)}:
                found = self._place.get(name.removeprefix("AWS::")) or self._names.get(name, f"<{name}>")
            case {"Fn::GetAtt": [logical, "Arn" | "TopicArn"]}:
                found = self._arn(logical)
            case {"Fn::GetAtt": [logical, _]}:
                # The name of a state machine ends its ARN, which is its physical name.
                found = self._names.get(logical, f"<{logical}>").rpartition(":")[2]
            case {"Fn::Join": [separator, parts]}:
                found = separator.join(str(self._resolved(part)) for part in parts)
            case dict():
                return {key: self._resolved(item) for key, item in value.items()}
            case list():
                return [self._resolved(item) for item in value]
            case _:
                return value
        return found

    def _arn(self, logical: str) -> str:
        name, pattern = self._names.get(logical, f"<{logical}>"), _ARNS.get(self._resources[logical]["Type"])
        if name.startswith("arn:") or pattern is None:
            return name
        # The physical name of a queue is its URL.
        return pattern.format(name.rpartition("/")[2] if "://" in name else name, **self._place)


def many(value: Any) -> list[Any]:
    """A member of a policy that is one or several."""
    return value if isinstance(value, list) else [value]
