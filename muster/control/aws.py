"""AWS clients of the functions, and what their errors mean."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_stepfunctions import SFNClient

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 16

# Throttled calls are tried again with exponential back-off and full jitter, at most 20 s apart: about a minute in all.
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 8},
    connect_timeout=5,
    read_timeout=30,
    max_pool_connections=PARALLEL,
    # Checksums where S3 demands them; our documents are verified by their own parser.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


def s3_client() -> S3Client:
    """An S3 client with the control plane's retries."""
    return boto3.client("s3", config=_CONFIG)


def sagemaker_client() -> SageMakerClient:
    """A SageMaker client with the control plane's retries."""
    return boto3.client("sagemaker", config=_CONFIG)


def stepfunctions_client() -> SFNClient:
    """A Step Functions client with the control plane's retries."""
    return boto3.client("stepfunctions", config=_CONFIG)


def error_code(error: ClientError) -> str:
    """The error's code, without a protocol's decoration."""
    return str(error.response.get("Error", {}).get("Code", "")).partition(":")[0]


def http_status(error: ClientError) -> int:
    """The answer's HTTP status, 0 when there is none."""
    metadata: dict[str, Any] = dict(error.response.get("ResponseMetadata", {}))
    return int(metadata.get("HTTPStatusCode", 0))


def error_message(error: ClientError) -> str:
    """The error's text."""
    return str(error.response.get("Error", {}).get("Message", ""))


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of every item, in the items' order, a bounded number at a time. The first error is raised."""
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return list(pool.map(function, items))
