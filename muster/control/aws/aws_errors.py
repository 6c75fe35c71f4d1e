"""What the errors of AWS calls say: by code and status, never by their wording."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.errors import ConflictError

_THROTTLES = {"ThrottlingException", "Throttling", "TooManyRequestsException", "SlowDown", "RequestLimitExceeded"}


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


def is_passing(error: Exception) -> bool:
    """Whether time heals it: a service that is down, slow or throttles, a connection that broke, a lost race."""
    if isinstance(error, ClientError):
        return http_status(error) >= 500 or error_code(error) in _THROTTLES
    return isinstance(error, BotoCoreError | ConflictError | OSError)
