"""The credentials of a process, those of its environment or of its container's role; and the region of its AWS.

A container's role has them from an address that the environment names: SageMaker's jobs have a path at 169.254.170.2,
pods of a cluster a whole address and a file with a token. SageMaker documents no variable that names the region.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from threading import Lock
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from muster.contract.aws.partitions import dns_suffix
from muster.contract.run.replica_variables import ENV_REGION

# Of ECS and of SageMaker: https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
_CONTAINER_HOST = "http://169.254.170.2"
_TIMEOUT_SECONDS = 5.0
_ANSWER_BYTES_MAX = 65_536
# AWS issues new ones at least five minutes before the old ones expire.
RENEWED_BEFORE_SECONDS = 300.0
# After a renewal that has failed, or whose answer expires soon.
_AGAIN_SECONDS = 10.0
# In every training container: arn:<partition>:sagemaker:<region>:<account>:training-job/<name>.
_JOB_ARN = "TRAINING_JOB_ARN"


class NoCredentialsError(Exception):
    """There are none, or none that are known here."""


@dataclass(frozen=True)
class Credentials:
    """What a request is signed with."""

    key: str
    secret: str
    token: str | None = None


class NoRedirects(HTTPRedirectHandler):
    """What authorizes a request is for one address."""

    def redirect_request(self, *_: object) -> None:
        """None: the answer is an error."""


def _bounded(answer: HTTPResponse) -> bytes:
    """A short answer, in a short time."""
    found, deadline = b"", time.monotonic() + _TIMEOUT_SECONDS
    while more := answer.read1(_ANSWER_BYTES_MAX):
        found += more
        if len(found) > _ANSWER_BYTES_MAX or time.monotonic() > deadline:
            message = "too long an answer"
            raise ValueError(message)
    return found


class CredentialSource:
    """Renews credentials before they expire. Instances may be used from several threads."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables`: the environment."""
        self._lock = Lock()
        self._expires = float("inf")
        self._asked_at = -_AGAIN_SECONDS
        self._known: Credentials | None = None
        self._address: str | None = None
        self._token_file: str | None = None
        key, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
        path = variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        address = variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        token_file = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        if key and secret:
            self._known = Credentials(key, secret, variables.get("AWS_SESSION_TOKEN"))
        elif variables.get("AWS_WEB_IDENTITY_TOKEN_FILE") and variables.get("AWS_ROLE_ARN"):
            return  # the other client exchanges the token for credentials
        elif path:
            self._address = _CONTAINER_HOST + path
        elif address and token_file:
            self._address, self._token_file = address, token_file

    @property
    def is_known(self) -> bool:
        """Whether the environment names credentials, or where they are."""
        return self._known is not None or self._address is not None

    def current(self) -> Credentials:
        """The credentials as they are now.

        Raises:
            NoCredentialsError: there are none, or they have expired and no new ones can be had.
        """
        with self._lock:
            now = time.time()
            if self._known is None or now > self._expires - RENEWED_BEFORE_SECONDS:
                self._renew(now)
            if self._known is None or now >= self._expires:
                raise NoCredentialsError
            return self._known

    def refuse(self, credentials: Credentials) -> None:
        """S3 does not take them: ask for new ones with the next request, where they can be had."""
        with self._lock:
            if self._address is not None and credentials == self._known:
                self._known = None

    def _renew(self, now: float) -> None:
        if self._address is None or time.monotonic() < self._asked_at + _AGAIN_SECONDS:
            return
        self._asked_at = time.monotonic()
        try:
            headers = {"Authorization": Path(self._token_file).read_text().strip()} if self._token_file else {}
            # Links of the container's own network: no proxy leads there.
            opener = build_opener(ProxyHandler({}), NoRedirects())
            request = Request(self._address, headers=headers)  # noqa: S310 - http, as AWS documents it
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                found = json.loads(_bounded(answer))
            expires = datetime.fromisoformat(found["Expiration"]).timestamp()
            known = Credentials(found["AccessKeyId"], found["SecretAccessKey"], found.get("Token"))
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return  # those from before are valid for minutes; without any the caller raises
        if expires > now:
            self._known, self._expires = known, expires


def region_of(variables: Mapping[str, str]) -> str | None:
    """The region from a process's variables; None where none names it (outside of SageMaker).

    The request of a run's jobs sets MUSTER_REGION. A job that was not launched by Muster has TRAINING_JOB_ARN.
    """
    parts = variables.get(_JOB_ARN, "").split(":")
    of_job = parts[3] if len(parts) > 5 else ""
    return variables.get(ENV_REGION) or of_job or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")


def s3_endpoint(region: str) -> str:
    """S3's address in a region, of any partition."""
    return f"https://s3.{region}.{dns_suffix(region)}"
