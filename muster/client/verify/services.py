"""The clients that only a verification needs, and the stack that it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from muster.client.aws.cloud import Cloud
from muster.client.aws.connection import CONFIG
from muster.client.aws.deployed_stack import outputs_of
from muster.client.verify.asking import UncheckedError, allowed
from muster.client.verify.stack_template import StackTemplate

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_sts import STSClient

# IAM limits the rate of its calls and does not publish the limit; a verification makes some two hundred simulations.
_PATIENT = CONFIG.merge(Config(retries={"mode": "adaptive", "total_max_attempts": 8}))


@dataclass(frozen=True)
class Identity:
    """Whose credentials are used."""

    account: str
    arn: str

    @property
    def partition(self) -> str:
        """`aws`, `aws-cn`, `aws-us-gov`."""
        return self.arn.split(":")[1]


class Account:
    """One stack in its account and region, with one session's credentials."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.session = cloud.session

    @property
    def cloudformation(self) -> CloudFormationClient:
        """The client of CloudFormation."""
        return self.cloud.connection.cloudformation

    @property
    def s3(self) -> S3Client:
        """The client of S3, which expects the stack's bucket to be of the stack's account."""
        return self.cloud.connection.s3

    @property
    def sagemaker(self) -> SageMakerClient:
        """The client of SageMaker."""
        return self.cloud.connection.sagemaker

    @property
    def stepfunctions(self) -> SFNClient:
        """The client of Step Functions."""
        return self.cloud.connection.stepfunctions

    @property
    def logs(self) -> CloudWatchLogsClient:
        """The client of CloudWatch Logs, which retries more often."""
        return self.cloud.connection.logs

    @cached_property
    def sts(self) -> STSClient:
        """The client of STS."""
        found: STSClient = self._client("sts")
        return found

    @cached_property
    def iam(self) -> IAMClient:
        """The client of IAM, which retries more often."""
        found: IAMClient = self._client("iam", _PATIENT)
        return found

    @cached_property
    def events(self) -> EventBridgeClient:
        """The client of EventBridge."""
        found: EventBridgeClient = self._client("events")
        return found

    @cached_property
    def functions(self) -> LambdaClient:
        """The client of Lambda."""
        found: LambdaClient = self._client("lambda")
        return found

    @cached_property
    def sns(self) -> SNSClient:
        """The client of SNS."""
        found: SNSClient = self._client("sns")
        return found

    def other(self, service: str, config: Config = CONFIG) -> Any:
        """The client of a service that is asked once or twice."""
        return self._client(service, config)

    @cached_property
    def description(self) -> StackTypeDef:
        """What CloudFormation says of the stack."""
        with allowed("cloudformation:DescribeStacks", "*"):
            return self.cloudformation.describe_stacks(StackName=self.cloud.stack.name)["Stacks"][0]

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The stack's outputs."""
        return outputs_of(self.description)

    def output(self, name: str) -> str:
        """One of them.

        Raises:
            UncheckedError: the stack does not have it.
        """
        if not self.outputs.get(name):
            message = f"The stack has no output {name}."
            raise UncheckedError(message, "Deploy the stack again.")
        return self.outputs[name]

    @cached_property
    def identity(self) -> Identity:
        """Whose credentials these are."""
        # GetCallerIdentity needs no permission.
        with allowed("sts:GetCallerIdentity"):
            answer = self.sts.get_caller_identity()
        return Identity(answer["Account"], answer["Arn"])

    @cached_property
    def template(self) -> StackTemplate:
        """The template that was deployed, with the physical names of its resources."""
        stack_id = self.description["StackId"]
        with allowed("cloudformation:GetTemplate", stack_id):
            body = self.cloudformation.get_template(StackName=self.cloud.stack.name)["TemplateBody"]
        with allowed("cloudformation:ListStackResources", stack_id):
            pages = self.cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.cloud.stack.name)
            names = {
                item["LogicalResourceId"]: item.get("PhysicalResourceId", "")
                for page in pages
                for item in page["StackResourceSummaries"]
            }
        _, partition, _, region, account, *_ = stack_id.split(":")
        return StackTemplate.read(body, names, {"Partition": partition, "Region": region, "AccountId": account})

    def _client(self, service: str, config: Config = CONFIG) -> Any:
        with allowed(f"{service}:*"):
            return self.session.client(service, config=config)  # type: ignore[call-overload]
