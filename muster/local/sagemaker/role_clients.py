"""S3 clients of the platform, with the rights of a job's role."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import boto3
import botocore.config

from muster.local.ministack.host import Account
from muster.local.ministack.role_sessions import RoleGrant, role_session

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PLATFORM_SESSION = "SageMakerPlatform"
"""Session name for what the platform does with a job's role; the container's session is `SageMaker`."""
_RENEW_SECONDS = 12 * 3600  # half of the lifetime of a session
_CONFIG = botocore.config.Config(
    s3={"addressing_style": "path"},
    max_pool_connections=32,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


class RoleClients:
    """One client for each role, shared by its jobs: a client costs 30 ms of CPU, and dozens of jobs start at once."""

    def __init__(self, account: Account, endpoint: Mapping[str, str]) -> None:
        """`endpoint`: the environment variables with which a process reaches this service."""
        self._account = account
        self._endpoint = endpoint
        self._session = boto3.Session()
        self._clients: dict[RoleGrant, tuple[float, S3Client]] = {}
        self._lock = threading.Lock()

    def of_role(self, grant: RoleGrant) -> S3Client:
        """The client of a role with session tags. Each call is checked against the role's policies."""
        with self._lock:
            made, client = self._clients.get(grant, (0.0, None))
            if client is None or time.monotonic() - made > _RENEW_SECONDS:
                client = self._make(grant)
                self._clients[grant] = time.monotonic(), client
            return client

    def _make(self, grant: RoleGrant) -> S3Client:
        credentials = role_session(self._account, grant, PLATFORM_SESSION)
        return self._session.client(
            "s3",
            endpoint_url=self._endpoint["AWS_ENDPOINT_URL"],
            region_name=self._account.region,
            verify=self._endpoint["AWS_CA_BUNDLE"],
            aws_access_key_id=credentials.access_key_id,
            aws_secret_access_key=credentials.secret_access_key,
            aws_session_token=credentials.session_token,
            config=_CONFIG,
        )
