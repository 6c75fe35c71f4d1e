"""The AWS clients of the functions, with the control plane's retries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import botocore.session
from botocore.client import BaseClient
from botocore.config import Config

from muster.control.aws.timer_schedules import SchedulerClient
from muster.control.runtime.parallel import PARALLEL

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

P = TypeVar("P")

CONNECT_SECONDS = 5
READ_SECONDS = 10
"""A service that takes requests and does not answer costs so much of each try. All tries of a call must fit into the
time of every function: then it is the function that says what hangs, and Lambda does not end it before."""
# With exponential back-off and full jitter: about 15 s of waiting on average, 31 s at most. After that the workflow
# tries again, because a workflow waits at a lower cost than a function.
TRIES = 6
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": TRIES},
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    max_pool_connections=PARALLEL,
    # Checksums only where S3 requires them; the parser verifies Muster's documents.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


# One retry and no long wait, because no run depends on an event.
EVENT_TRIES = 2
_CONFIG_FOR_EVENTS = Config(
    retries={"mode": "standard", "total_max_attempts": EVENT_TRIES},
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
)

Service = Literal["s3", "sagemaker", "stepfunctions", "events", "scheduler", "sns", "sts"]


def _client(service: str, config: Config = _CONFIG) -> Any:
    """A client of the functions, created when it is first used."""
    return cached_property(lambda clients: clients._create(service, config))


class Clients:
    """One client per service, created when it is first used."""

    s3: S3Client = _client("s3")
    sagemaker: SageMakerClient = _client("sagemaker")
    stepfunctions: SFNClient = _client("stepfunctions")
    events: EventBridgeClient = _client("events", _CONFIG_FOR_EVENTS)
    scheduler: SchedulerClient = _client("scheduler")
    sns: SNSClient = _client("sns")
    # Opened when it is used: most runs end without an attempt whose log is read. Its lines are shown, and nothing
    # depends on them.
    logs: CloudWatchLogsClient = _client("logs", _CONFIG_FOR_EVENTS)
    sts: STSClient = _client("sts")

    @classmethod
    def opened(cls, *services: Service) -> Self:
        """With the clients of `services` already created: a function creates them before its first event."""
        clients = cls()
        for service in services:
            getattr(clients, service)
        return clients

    def drop_connections(self) -> None:
        """Close all connections: those of another process cannot be used. The next call opens a new one."""
        for client in vars(self).values():
            if isinstance(client, BaseClient):
                client.close()

    @cached_property
    def session(self) -> botocore.session.Session:
        """That of botocore: no function uses what boto3 adds (resources, transfers of files), and it costs 50 ms."""
        return botocore.session.get_session()

    def sagemaker_in(self, credentials: CredentialsTypeDef) -> SageMakerClient:
        """SageMaker in a role's session. It costs 10 ms of CPU time if there is a client of SageMaker already."""
        client: SageMakerClient = self._create(
            "sagemaker",
            _CONFIG,
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"],
        )
        return client

    def client(self, service: str) -> Any:
        """A client of a service that only an option calls, created when it is first used."""
        opened = vars(self)
        if service not in opened:
            opened[service] = self._create(service, _CONFIG)
        return opened[service]

    def part(self, kind: Callable[[Clients], P]) -> P:
        """What an option calls with, made of these clients; a test has its own instead."""
        return kind(self)

    def _create(self, service: str, config: Config, **credentials: Any) -> Any:
        return self.session.create_client(service, config=config, **credentials)
