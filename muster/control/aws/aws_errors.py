"""The errors of AWS calls, read by code and status, never by their wording; and trying again what fails in passing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.errors import ConflictError, NewerDocumentError
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget

R = TypeVar("R")

_THROTTLES = {
    *("ThrottlingException", "Throttling", "Throttled"),
    *("TooManyRequestsException", "SlowDown", "RequestLimitExceeded"),
}
_LONGEST_PAUSE_SECONDS = 20.0


def error_code(error: ClientError) -> str:
    """The error's code, without what a protocol adds after a colon."""
    return str(error.response.get("Error", {}).get("Code", "")).partition(":")[0]


def http_status(error: ClientError) -> int:
    """The HTTP status of the response, 0 where there is none."""
    metadata = error.response.get("ResponseMetadata")
    return metadata["HTTPStatusCode"] if metadata else 0


def error_message(error: ClientError) -> str:
    """The error's text."""
    return str(error.response.get("Error", {}).get("Message", ""))


def is_throttled(error: ClientError) -> bool:
    """Whether a service says that calls come too fast."""
    return error_code(error) in _THROTTLES


def is_transient(error: Exception) -> bool:
    """Whether a later try may succeed: a service that is down, slow or throttles, a broken connection, a lost race.

    So may one after a rollback that met a document of the newer version: that version is deployed again.
    """
    if isinstance(error, ClientError):
        return http_status(error) >= 500 or is_throttled(error)
    return isinstance(error, BotoCoreError | ConflictError | NewerDocumentError | OSError)


def is_denied(error: ClientError) -> bool:
    """Whether the caller may not do this, or is not known any more: its role is gone, for instance."""
    # SageMaker answers AccessDeniedException with 400.
    return http_status(error) in {401, 403} or error_code(error) in {"AccessDenied", "AccessDeniedException"}


@contextmanager
def tolerated(*answers: str | int) -> Iterator[None]:
    """Pass over an error of AWS with one of these codes or HTTP statuses."""
    try:
        yield
    except ClientError as error:
        if error_code(error) not in answers and http_status(error) not in answers:
            raise


def patiently(call: Callable[[], R], budget: TimeBudget) -> R:
    """The answer of `call`. While it is throttled or fails in passing it is repeated, until the budget is spent.

    Each try of `call` is several of the SDK's (`clients.TRIES`). The pauses between the tries grow, with full jitter.

    Raises:
        ClientError, BotoCoreError, ConflictError: the error of the last try, or one that no other try would change.
    """
    longest = 1.0
    while True:
        try:
            return call()
        except (ClientError, BotoCoreError, ConflictError) as error:
            if not is_transient(error) or budget.is_spent:
                raise
        clock.sleep(min(random.uniform(0, longest), budget.remaining))  # noqa: S311 - jitter
        longest = min(2 * longest, _LONGEST_PAUSE_SECONDS)


class UnavailableError(ConnectionError):
    """A service failed in passing. By this name the workflow tries a function again for hours, not for minutes."""


@contextmanager
def outages_named() -> Iterator[None]:
    """Raise `UnavailableError` for an error after which a later try may succeed. Also a decorator."""
    try:
        yield
    except Exception as error:
        if not is_transient(error):
            raise
        raise UnavailableError(str(error)) from error
