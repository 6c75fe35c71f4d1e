"""What a deployment asks of the account that it deploys to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import yaml

from muster.client.aws.connection import CONFIG, caller_place
from muster.client.aws.deployed_stack import outputs_of
from muster.client.aws.error_translation import translated
from muster.client.aws.s3_route import Routes, read_routes
from muster.client.aws.training_jobs import active_jobs, job_tags
from muster.client.client_errors import ClientError, DeniedError, UnreachableError
from muster.contract.aws.partitions import Locality
from muster.contract.document import json_object
from muster.contract.names import execution_arn
from muster.contract.run.orphans import ActiveJob
from muster.infra.deploy.bucket_requirements import BucketState
from muster.infra.deploy.cdk_tools import DeployError
from muster.infra.settings.stack_settings import SETTINGS_METADATA, Tables

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

_TOOLKIT = "CDKToolkit"  # the stack that `cdk bootstrap` makes
_GONE = {"DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"}
"""A stack with one of these statuses has no resources: the next deployment makes it."""


@dataclass(frozen=True)
class DeployedStack:
    """A stack as it is deployed. `changed_at` is when it was created or last changed."""

    name: str
    status: str
    outputs: Mapping[str, str]
    template: Mapping[str, Any] = field(default_factory=dict)
    changed_at: datetime | None = None
    is_protected: bool = False
    """Whether CloudFormation refuses to delete it."""

    @property
    def settings(self) -> Tables:
        """The settings with which it was deployed, which its template carries."""
        found: Tables = self.template.get("Metadata", {}).get(SETTINGS_METADATA, {})
        return found

    @property
    def makes_its_bucket(self) -> bool:
        """Whether the bucket is one of its resources."""
        return any(item["Type"] == "AWS::S3::Bucket" for item in self.template.get("Resources", {}).values())


class Account:
    """The account and region of a session. Every call raises a ClientError of the client when AWS refuses it."""

    def __init__(self, session: AnySession) -> None:
        self._session = session
        self._made: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """A client of `service`, made once."""
        if service not in self._made:
            with translated():
                self._made[service] = self._session.client(service, config=CONFIG)  # type: ignore[call-overload]
        return self._made[service]

    def place(self) -> Locality:
        """Where the credentials lead."""
        return caller_place(self._session)

    def stack(self, name: str) -> DeployedStack | None:
        """The stack `name`; None if there is none, or nothing of it.

        Raises:
            DeployError: CloudFormation is changing it now.
        """
        client = self.client("cloudformation")
        found: Any = None
        # DescribeStacks answers a stack that does not exist with this general code.
        with translated("ValidationError"):
            [found] = client.describe_stacks(StackName=name)["Stacks"]
        if found is None or found["StackStatus"] in _GONE:
            return None
        if found["StackStatus"].endswith("_IN_PROGRESS"):
            message = f"The stack {name} is being changed ({found['StackStatus']}): wait until that has ended."
            raise DeployError(message)
        with translated():
            body = client.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        # botocore parses a body of JSON; the CDK CLI writes a small template as YAML.
        template = body if isinstance(body, dict) else _yaml(body)
        changed_at = found.get("LastUpdatedTime", found["CreationTime"])
        is_protected = found.get("EnableTerminationProtection", False)
        return DeployedStack(name, found["StackStatus"], outputs_of(found), template, changed_at, is_protected)

    def job_prefixes(self) -> dict[str, str]:
        """The job prefix of each of the account's stacks in the region that has one, by the stack's name."""
        with translated():
            pages = self.client("cloudformation").get_paginator("describe_stacks").paginate()
            outputs = {stack["StackName"]: outputs_of(stack) for page in pages for stack in page["Stacks"]}
        return {name: found["JobPrefix"] for name, found in outputs.items() if "JobPrefix" in found}

    def is_bootstrapped(self) -> bool:
        """Whether the CDK's own stack is there."""
        return self.stack(_TOOLKIT) is not None

    def running_runs(self, machine: str) -> list[str]:
        """The names of the runs that have not ended; a deletion that failed may have left no state machine."""
        with translated("StateMachineDoesNotExist"):
            pages = self.client("stepfunctions").get_paginator("list_executions")
            found = pages.paginate(stateMachineArn=machine, statusFilter="RUNNING")
            return [item["name"] for page in found for item in page["executions"]]
        return []

    def active_jobs(self, prefix: str) -> Iterator[ActiveJob]:
        """The training jobs that have not ended and whose names Muster could make under the job prefix `prefix`."""
        return active_jobs(self.client("sagemaker"), prefix)

    def job_tags(self, arn: str) -> dict[str, str]:
        """The tags of a training job."""
        return job_tags(self.client("sagemaker"), arn)

    def routes(self, subnet: str, region: str) -> Routes:
        """The route tables of the VPC that `subnet` is in, and its endpoints for S3."""
        with translated():
            return read_routes(self.client("ec2"), subnet, region)

    def bucket(self, name: str, place: Locality) -> BucketState | None:
        """What `name` has of what the stack needs; None if this account has no such bucket in this region."""
        client = self.client("s3")
        owner = {"Bucket": name, "ExpectedBucketOwner": place.account}
        region = None
        with translated("NoSuchBucket", "AccessDenied", "404", "403"):
            region = client.get_bucket_location(**owner).get("LocationConstraint") or "us-east-1"
        if region != place.region:
            return None
        policy = self._part(lambda: client.get_bucket_policy(**owner)["Policy"])
        rules = self._part(lambda: client.get_bucket_lifecycle_configuration(**owner)["Rules"])
        notifications = self._part(lambda: client.get_bucket_notification_configuration(**owner))
        return BucketState(
            statements=[] if policy is None else json_object(policy).get("Statement", []),
            rules=rules or [],
            notifications={key: value for key, value in (notifications or {}).items() if key != "ResponseMetadata"},
        )

    def key_policy(self, key_arn: str) -> Mapping[str, Any]:
        """The policy of a KMS key."""
        with translated():
            return json_object(self.client("kms").get_key_policy(KeyId=key_arn, PolicyName="default")["Policy"])

    def role_trust(self, arn: str) -> Mapping[str, Any] | None:
        """The trust policy of a role of this account; None if there is no such role."""
        with translated("NoSuchEntity"):
            found = self.client("iam").get_role(RoleName=arn.rpartition("/")[2])["Role"]
            policy = found["AssumeRolePolicyDocument"]  # botocore has parsed it
            return policy if isinstance(policy, dict) else json_object(policy)
        return None

    def answers(self, service: str, call: Callable[[Any], object]) -> bool:
        """Whether a service answers here. Whether this caller may use it is another question."""
        try:
            with translated():
                call(self.client(service))
        except UnreachableError:
            return False
        except ClientError:
            pass
        return True

    def run_input(self, machine: str, run: str) -> Mapping[str, Any]:
        """The input of a run; empty where the caller may not read it."""
        execution = execution_arn(machine, run)
        try:
            with translated():
                return json_object(self.client("stepfunctions").describe_execution(executionArn=execution)["input"])
        except DeniedError:
            return {}

    @staticmethod
    def seen(read: Callable[[], Any]) -> tuple[Any, bool]:
        """What `read` returns, None where there is no such thing; and whether the caller may ask."""
        try:
            with translated("ResourceNotFound", "ResourceNotFoundException"):
                return read(), True
        except DeniedError:
            return None, False  # a caller that may not has docs/deploying.md
        return None, True

    @staticmethod
    def _part(read: Any) -> Any:
        """What `read` returns; None where S3 answers that the bucket has no such configuration."""
        with translated("NoSuchBucketPolicy", "NoSuchLifecycleConfiguration"):
            return read()
        return None


def _yaml(text: str) -> dict[str, Any]:
    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}
