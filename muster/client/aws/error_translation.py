"""Translates botocore's errors into Muster's. The one place that knows both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as aws

from muster.client.client_errors import (
    BusyError,
    ClientError,
    CredentialsError,
    DeniedError,
    RefusedError,
    RegionError,
    UnreachableError,
)

_BAD_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
# An answer without a body, as to HeadObject, has the HTTP status alone.
_DENIED = {"403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_THROTTLED = {"RequestLimitExceeded", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
_SERVER_ERROR = 500  # HTTP: from here on the fault is not the request's


@contextmanager
def translated(*tolerated: str) -> Iterator[None]:
    """Raise botocore's errors as a `ClientError` of the client; one with a `tolerated` code ends the block."""
    try:
        yield
    except aws.ClientError as error:
        if error_code(error) not in tolerated:
            raise _refusal(error) from error
    except (
        aws.NoCredentialsError,
        aws.PartialCredentialsError,
        aws.CredentialRetrievalError,
        aws.ProfileNotFound,
        aws.SSOError,
        aws.TokenRetrievalError,
    ) as error:
        raise CredentialsError(str(error)) from error
    except aws.NoRegionError as error:
        raise RegionError from error
    except (aws.ConnectionError, aws.HTTPClientError) as error:
        raise UnreachableError(str(error)) from error
    except aws.BotoCoreError as error:
        raise RefusedError(type(error).__name__, str(error)) from error


def error_code(error: aws.ClientError) -> str:
    """The code by which AWS names an error."""
    return error.response.get("Error", {}).get("Code", "")


def _refusal(error: aws.ClientError) -> ClientError:
    code, detail = error_code(error), error.response.get("Error", {}).get("Message", "")
    if code in _BAD_CREDENTIALS:
        return CredentialsError(f"{code}: {detail}")
    if code in _DENIED:
        return DeniedError(error.operation_name, detail)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = BusyError if code in _THROTTLED or status >= _SERVER_ERROR else RefusedError
    return kind(f"{error.operation_name}: {code}", detail)
