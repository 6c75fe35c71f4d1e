"""The AWS clients of the functions: one kind of each, with the control plane's retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from muster.control.aws.timer_schedules import SchedulerClient
from muster.control.runtime.parallel import PARALLEL

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_stepfunctions import SFNClient

# With exponential back-off and full jitter between them: about 15 s on average, 31 s at most. What lasts longer goes
# back to the workflow, which waits for less money than a function does.
TRIES = 6
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": TRIES},
    connect_timeout=5,
    read_timeout=30,
    max_pool_connections=PARALLEL,
    # Checksums where S3 demands them; our documents are verified by their own parser.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


# Telling others is worth a second try and no long wait: the run goes on without it.
_CONFIG_FOR_EVENTS = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=5, read_timeout=10)


def s3_client() -> S3Client:
    """An S3 client."""
    return boto3.client("s3", config=_CONFIG)


def sagemaker_client() -> SageMakerClient:
    """A SageMaker client."""
    return boto3.client("sagemaker", config=_CONFIG)


def stepfunctions_client() -> SFNClient:
    """A Step Functions client."""
    return boto3.client("stepfunctions", config=_CONFIG)


def events_client() -> EventBridgeClient:
    """An EventBridge client, for putting events."""
    return boto3.client("events", config=_CONFIG_FOR_EVENTS)


def scheduler_client() -> SchedulerClient:
    """An EventBridge Scheduler client."""
    client: SchedulerClient = boto3.client("scheduler", config=_CONFIG)
    return client


def sns_client() -> SNSClient:
    """An SNS client."""
    return boto3.client("sns", config=_CONFIG)
