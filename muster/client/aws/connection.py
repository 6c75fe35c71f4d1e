"""One session's clients of the services, and the stack that is found with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as AwsError

from muster.client.aws.deployed_stack import DEFAULT_STACK, Stack, outputs_of
from muster.client.aws.error_translation import error_code, translated
from muster.client.aws.light_session import AnySession, LightSession
from muster.client.client_errors import SeveralStacksError, StackNotFoundError, UnnamedStackError, UnreachableError
from muster.contract.aws.partitions import Locality

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_stepfunctions import SFNClient

CONFIG = Config(
    connect_timeout=5,
    read_timeout=30,
    retries={"mode": "standard", "total_max_attempts": 3},
    user_agent_extra="muster",
)
# Other users of the account call FilterLogEvents too. A follower can wait, and must not lose its position.
_PATIENT = CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 8}))

_DENIED = "AccessDenied"  # CloudFormation


class QueueClient(Protocol):
    """The part of SQS that Muster uses."""

    def receive_message(self, **request: object) -> Any:
        """ReceiveMessage."""

    def delete_message(self, **request: object) -> object:
        """DeleteMessage."""

    def change_message_visibility(self, **request: object) -> object:
        """ChangeMessageVisibility."""


def open_session(profile: str | None, region: str | None) -> LightSession:
    """A session; a profile or region that is left out is chosen as the AWS CLI chooses it.

    Raises:
        CredentialsError: there is no such profile.
    """
    with translated():
        # botocore itself reads only AWS_DEFAULT_REGION.
        return LightSession(profile, region or os.environ.get("AWS_REGION") or None)


def caller_place(session: AnySession) -> Locality:
    """Where the credentials of a session lead; GetCallerIdentity needs no permission."""
    with translated():
        sts = session.client("sts", config=CONFIG)
        identity = sts.get_caller_identity()
    return Locality(identity["Arn"].split(":")[1], sts.meta.region_name, identity["Account"])


# A session must not make two clients at once; the clients themselves may be used from many threads.
_one_at_a_time = threading.Lock()


def _client(service: str, config: Config | None = None) -> Any:
    """A client of a connection, made on first use: making one costs more CPU time than most calls."""
    return cached_property(lambda connection: connection.client(service, config))


class Connection:
    """The clients of one session."""

    cloudformation: CloudFormationClient = _client("cloudformation")
    functions: LambdaClient = _client("lambda")
    iam: IAMClient = _client("iam")
    logs: CloudWatchLogsClient = _client("logs", _PATIENT)
    sagemaker: SageMakerClient = _client("sagemaker")
    sqs: QueueClient = _client("sqs")
    stepfunctions: SFNClient = _client("stepfunctions")

    def __init__(
        self, stack_name: str | None, session: AnySession, config: Config, clients: Mapping[str, Any] | None = None
    ) -> None:
        """`clients`: those of boto3 that are used instead of new ones, by the services' names."""
        self.session = session
        self._clients = dict(clients or {})
        self._stack_name = stack_name
        self._config = config

    @cached_property
    def stack(self) -> Stack:
        """The stack, read from its CloudFormation outputs.

        Raises:
            StackNotFoundError: there is none of that name.
            ForeignStackError: it is not a Muster stack.
            SeveralStacksError: none is named, and several could be meant.
            UnnamedStackError: none is named, and the caller may not look for it.
        """
        wanted = self._stack_name or DEFAULT_STACK
        with translated():
            try:
                [found] = self.cloudformation.describe_stacks(StackName=wanted)["Stacks"]
            except AwsError as error:
                is_denied = error_code(error) == _DENIED and self._stack_name is None
                # DescribeStacks answers a stack that does not exist with this general code.
                if error_code(error) != "ValidationError" and not is_denied:
                    raise
                if self._stack_name is None and (only := self._only_stack()) is not None:
                    return only
                if is_denied:
                    raise UnnamedStackError(wanted, error.response["Error"]["Message"]) from error
                region = self.cloudformation.meta.region_name
                raise StackNotFoundError(wanted, region) from error
        return Stack.from_outputs(wanted, outputs_of(found))

    def _only_stack(self) -> Stack | None:
        """The only stack of Muster in the account and region; None if there is none or the caller may list none."""
        outputs: dict[str, dict[str, str]] = {}
        with translated(_DENIED):
            pages = self.cloudformation.get_paginator("describe_stacks").paginate()
            outputs = {stack["StackName"]: outputs_of(stack) for page in pages for stack in page["Stacks"]}
        found = {name: values for name, values in sorted(outputs.items()) if Stack.is_described_by(values)}
        if len(found) > 1:
            raise SeveralStacksError(list(found), self.cloudformation.meta.region_name)
        return next((Stack.from_outputs(name, values) for name, values in found.items()), None)

    @cached_property
    def s3(self) -> S3Client:
        """The client of S3, which leaves the stack's bucket alone where another account has taken its name over."""
        client: S3Client = self.client("s3", None)
        client.meta.events.register("provide-client-params.s3", self._expect_owner)
        return client

    def _expect_owner(self, params: dict[str, Any], model: OperationModel, **_: object) -> Any:
        members = model.input_shape.members if model.input_shape else {}
        if params.get("Bucket") != self.stack.bucket or "ExpectedBucketOwner" not in members:
            return params
        return {"ExpectedBucketOwner": self.stack.account, **params}

    def client(self, service: str, config: Config | None) -> Any:
        """The client of a service, new unless it was given; None: with this connection's configuration."""
        if service in self._clients:
            return self._clients[service]
        make: Any = self.session.client
        with _one_at_a_time, translated():
            try:
                return make(service, config=config or self._config)
            except ValueError as error:
                if isinstance(error, BotoCoreError):
                    raise
                # botocore reports a malformed AWS_ENDPOINT_URL this way.
                raise UnreachableError(str(error)) from error
