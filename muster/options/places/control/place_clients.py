"""The AWS clients of a place, and when a place counts as silent."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.aws.price_offers import ENDPOINT_REGION, SERVICE, filters_of, training_prices
from muster.control.aws.aws_errors import http_status, is_denied, is_throttled
from muster.control.jobs import PlaceSilentError
from muster.control.runtime import clock
from muster.control.runtime.parallel import PARALLEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sts import STSClient
    from mypy_boto3_sts.type_defs import CredentialsTypeDef

    from muster.control.aws.clients import Clients

SILENT_SECONDS = 20.0
"""For how long a process does not ask a place again that has not answered: many replicas may be about to."""
# A place that does not answer must not use up the time of a function that works for all places.
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 3},
    connect_timeout=3,
    read_timeout=10,
    max_pool_connections=PARALLEL,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class PlaceClients:
    """Clients of other regions than the function's. Each is made when it is used."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @property
    def sts(self) -> STSClient:
        """STS at home: its sessions are valid in every region of the partition, also when a place is silent."""
        return self._clients.sts

    def sagemaker(self, region: str, credentials: CredentialsTypeDef) -> SageMakerClient:
        """SageMaker of a place in a session."""
        return cast("SageMakerClient", self._made("sagemaker", region, credentials))

    def logs(self, region: str, credentials: CredentialsTypeDef) -> CloudWatchLogsClient:
        """CloudWatch Logs of a place in a session."""
        return cast("CloudWatchLogsClient", self._made("logs", region, credentials))

    def s3(self, region: str, credentials: CredentialsTypeDef) -> S3Client:
        """S3 of a place in a session."""
        return cast("S3Client", self._made("s3", region, credentials))

    @property
    def home_region(self) -> str:
        """The function's region."""
        return str(self._clients.sts.meta.region_name)

    def usd_per_hour(self, region: str, instance_type: str) -> float | None:
        """What an hour of an instance costs on demand in a region, as AWS lists it; None where it is not known."""
        pages = self._pricing.get_paginator("get_products").paginate(
            ServiceCode=SERVICE, Filters=filters_of(region, instance_type)
        )
        listed = (json.loads(item) for page in pages for item in page["PriceList"])
        return max((price for offer in listed for price in training_prices(offer, instance_type)), default=None)

    @cached_property
    def _pricing(self) -> Any:
        return self._clients.session.create_client("pricing", region_name=ENDPOINT_REGION, config=_CONFIG)

    def _made(self, service: str, region: str, credentials: CredentialsTypeDef) -> Any:
        keys: dict[str, Any] = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }
        return self._clients.session.create_client(service, region_name=region, config=_CONFIG, **keys)


class Silence:
    """Whether a place answers, as this process has seen it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._until = -1.0

    def guarded(self, client: object, denied: Callable[[ClientError], Exception] | None = None) -> Any:
        """The client, whose calls raise PlaceSilentError where the place does not answer.

        `denied`: what they raise where it denies them, if not the service's own error. What creates a job always raises
        that: its refusal ends the attempt, and says why.
        """
        return _Guarded(client, self, denied)

    def call(self, call: Callable[[], Any], *, creates: bool) -> Any:
        """What a call of the place answers; `creates`: whether it creates a job.

        Raises:
            PlaceSilentError: nothing, in all tries; or it has just not answered another call.
            ClientError: its service refused, or says that calls come too fast.
        """
        if clock.monotonic() < self._until:
            raise PlaceSilentError(self._place, sent=False)
        try:
            return call()
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and _is_answer(error):
                raise
            self._until = clock.monotonic() + SILENT_SECONDS
            # The error is that of the last try of the SDK's: an earlier one may have come through.
            raise PlaceSilentError(self._place, sent=creates) from error


def _is_answer(error: ClientError) -> bool:
    """Whether a place that answers with this error is there."""
    # The answer to a HEAD has no body with a code: of S3, 503 may say that calls come too fast.
    may_be_throttled = http_status(error) == 503 and error.operation_name == "HeadObject"
    return http_status(error) < 500 or is_throttled(error) or may_be_throttled


class _Guarded:
    """A client of a place: its operations alone, because the calls of a paginator would not be guarded."""

    def __init__(self, client: object, silence: Silence, denied: Callable[[ClientError], Exception] | None) -> None:
        self._client = client
        self._silence = silence
        self._denied = denied

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        creates = name.startswith("create_")

        def call(**parameters: Any) -> Any:
            try:
                return self._silence.call(lambda: found(**parameters), creates=creates)
            except ClientError as error:
                if self._denied is not None and not creates and is_denied(error):
                    raise self._denied(error) from error
                raise

        return call
