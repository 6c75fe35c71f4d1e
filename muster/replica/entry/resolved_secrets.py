"""The secrets to which the environment refers, read with the role of the container before the program starts.

From the package's zip file, in an image of which nothing is known: the standard library alone, and one signed request
for each secret. The values are in the environment of the container's processes, and nowhere else.
"""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from muster.contract.aws.partitions import dns_suffix
from muster.contract.exits import ReplicaExit
from muster.contract.run.replica_variables import ENV_RESOLVED
from muster.contract.spec.secret_references import ALLOWED, SecretReference, is_reference, read_reference
from muster.replica.store.bulk.credentials import (
    Credentials,
    CredentialSource,
    NoCredentialsError,
    NoRedirects,
    region_of,
)
from muster.replica.store.bulk.signature import RequestTarget, signed_headers

TRIES = 6
_WAIT_SECONDS = 1.0  # before the second try; twice as long before each further one
_TIMEOUT_SECONDS = 10.0
_ANSWER_BYTES_MAX = 1 << 20  # Secrets Manager: a secret has at most 64 KiB
_SHOWN = 300
_TARGETS = {"secretsmanager": "secretsmanager.GetSecretValue", "ssm": "AmazonSSM.GetParameter"}
_THROTTLED = ("Throttl", "TooManyRequests", "RequestLimitExceeded", "InternalServiceError", "InternalServerError")


class SecretError(Exception):
    """A variable whose value cannot be read. The text names variable and reference; `code` is how the replica ends."""

    def __init__(self, name: str, value: str, why: str, code: ReplicaExit) -> None:
        self.code = code
        super().__init__(f"The variable {name} refers to {value}, which cannot be read: {why}")


class _AgainError(Exception):
    """A later try may succeed."""


class _RefusedError(Exception):
    """No later try will succeed."""


def resolve_secrets(variables: MutableMapping[str, str]) -> None:
    """Replace the references in the environment of this container by the values of their secrets, once.

    Raises:
        SecretError: one cannot be read.
    """
    names = [name for name, value in variables.items() if is_reference(value)]
    if not names or ENV_RESOLVED in variables:
        return
    source = CredentialSource(variables)
    values = {name: _value(name, variables, source) for name in names}
    variables.update(values)
    variables[ENV_RESOLVED] = ",".join(names)


def _value(name: str, variables: Mapping[str, str], source: CredentialSource) -> str:
    value, tried = variables[name], 0
    reference = read_reference(value)
    if reference is None:
        raise SecretError(name, value, f"allowed: {ALLOWED}", ReplicaExit.BAD_INPUT)
    while True:
        tried += 1
        try:
            return _picked(reference, _read(reference, variables, source))
        except _RefusedError as error:
            raise SecretError(name, value, str(error), ReplicaExit.BAD_INPUT) from None
        except _AgainError as error:
            if tried == TRIES:
                why = f"{error} (in {TRIES} tries; in a VPC, the service needs a route or an interface endpoint)"
                raise SecretError(name, value, why, ReplicaExit.RENDEZVOUS) from None
        # Many replicas start at once: they do not come back at once.
        time.sleep(_WAIT_SECONDS * 2 ** (tried - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret


def _picked(reference: SecretReference, text: str) -> str:
    """The value of the reference's key; without one, all of the secret."""
    if not reference.key:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or reference.key not in found:
        message = f"it is no JSON object with the key {reference.key!r}"
        raise _RefusedError(message)
    picked = found[reference.key]
    return picked if isinstance(picked, str) else json.dumps(picked)


def _read(reference: SecretReference, variables: Mapping[str, str], source: CredentialSource) -> str:
    """The text that the service has."""
    region = reference.region or region_of(variables)
    if region is None:
        message = "nothing in the container names its region"
        raise _RefusedError(message)
    if not source.is_known:
        message = "the container has no credentials of its role at an address that Muster knows"
        raise _RefusedError(message)
    is_parameter = reference.service == "ssm"
    asked = {"Name": reference.name, "WithDecryption": True} if is_parameter else {"SecretId": reference.name}
    try:
        answer = _ask(reference.service, region, asked, source.current(), variables)
        found = answer["Parameter"]["Value"] if is_parameter else answer.get("SecretString")
    except NoCredentialsError:
        message = "the container has no valid credentials of its role"
        raise _AgainError(message) from None
    except HTTPError as error:
        _raise(error)
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _AgainError(_cut(f"{type(error).__name__}: {error}")) from None
    if not isinstance(found, str):
        message = "it has no text (SecretString), only bytes"
        raise _RefusedError(message)
    if "\0" in found:
        message = "it has a null character, which no environment can hold"
        raise _RefusedError(message)
    return found


def _ask(
    service: str, region: str, asked: Mapping[str, object], credentials: Credentials, variables: Mapping[str, str]
) -> Any:
    """The answer of a service in the JSON 1.1 protocol."""
    own = "SECRETS_MANAGER" if service == "secretsmanager" else "SSM"
    endpoint = variables.get(f"AWS_ENDPOINT_URL_{own}") or variables.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or f"https://{service}.{region}.{dns_suffix(region)}").rstrip("/")
    body = json.dumps(asked).encode()
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": _TARGETS[service]}
    target = RequestTarget("POST", "/", service=service, headers=headers, body=body)
    signed = signed_headers(target, urlsplit(endpoint).netloc, region, credentials, datetime.now(UTC))
    trusted = ssl.create_default_context()
    if bundle := variables.get("AWS_CA_BUNDLE"):
        trusted.load_verify_locations(bundle)
    request = Request(f"{endpoint}/", body, signed, method="POST")  # noqa: S310 - https, or what the user has set
    with build_opener(HTTPSHandler(context=trusted), NoRedirects()).open(request, timeout=_TIMEOUT_SECONDS) as answer:
        return json.loads(answer.read(_ANSWER_BYTES_MAX))


def _raise(error: HTTPError) -> NoReturn:
    """What an answer of the service says. It names the secret and the role, and never a value."""
    with error:
        try:
            document = json.loads(error.read(_ANSWER_BYTES_MAX))
            code = str(document.get("__type", "")).rpartition("#")[2]
            message = str(document.get("message") or document.get("Message") or "")
        except (OSError, HTTPException, ValueError, AttributeError):
            code, message = "", ""
    text = _cut(f"{code or f'HTTP status {error.code}'}: {message}".removesuffix(": "))
    again = error.code >= 500 or error.code == 429 or code.startswith(_THROTTLED)
    raise (_AgainError if again else _RefusedError)(text) from None


def _cut(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]
