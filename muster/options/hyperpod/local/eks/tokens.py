"""The tokens with which IAM principals call the Kubernetes API: `k8s-aws-v1.` and a presigned GetCallerIdentity.

As in EKS's authenticator (kubernetes-sigs/aws-iam-authenticator, pkg/token): which parameters the URL may have, which
host, how old it may be, and that the name of the cluster is a signed header. The signature itself is verified with what
MiniStack's STS knows of the key.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from ministack.core import iam_evaluator, responses, sigv4
from ministack.core.iam_evaluator import CredentialResolutionError, ResolvedCredential

from muster.contract.aws.partitions import dns_suffix

PREFIX = "k8s-aws-v1."
HEADER = "x-k8s-aws-id"
VALID_FOR = datetime.timedelta(minutes=15)
_AHEAD = datetime.timedelta(minutes=5)  # how far STS lets a clock be ahead
_TOKEN_BYTES = 4 * 1024
_EXPIRES_MAX = 900
_EMPTY_PAYLOAD = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_PARAMETERS = frozenset(
    {
        *("action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires"),
        *("x-amz-security-token", "x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent"),
    }
)
_NEEDED = ("action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signedheaders")


class InvalidTokenError(Exception):
    """A token that is none, with the reason, which the log has and the caller does not get."""


@dataclass(frozen=True)
class _Signed:
    """The presigned request in a token."""

    host: str
    path: str
    query: dict[str, list[str]]
    values: Mapping[str, str]
    """By lower-case names."""


def principal_of(token: str, cluster: str, now: datetime.datetime | None = None) -> str:
    """The ARN of the IAM principal whose token for a cluster this is; of a role it is the ARN of its session.

    Raises:
        InvalidTokenError: no one's.
    """
    signed = _presigned(token)
    access_key, day, region = _check_parameters(signed, now or datetime.datetime.now(datetime.UTC))
    if signed.host != f"sts.{region}.{dns_suffix(region)}":
        message = f"unexpected hostname {signed.host!r} in pre-signed URL"
        raise InvalidTokenError(message)
    headers = signed.values["x-amz-signedheaders"].lower().split(";")
    if "host" not in headers or HEADER not in headers:
        message = f"client did not sign the {HEADER} header in the pre-signed URL"
        raise InvalidTokenError(message)
    credential = _credential(access_key, signed.values.get("x-amz-security-token"))
    # The header's value is not in the token: it is the name of the cluster that is asked.
    canonical = sigv4.build_canonical_request(
        "GET",
        signed.path,
        {"host": signed.host, HEADER: cluster},
        signed.query,
        ";".join(headers),
        payload_hash=_EMPTY_PAYLOAD,
    )
    to_sign = sigv4.build_string_to_sign(signed.values["x-amz-date"], day, region, "sts", canonical)
    expected = sigv4.calculate_signature(credential.secret_access_key, day, region, "sts", to_sign)
    if not sigv4.signatures_match(expected, signed.values.get("x-amz-signature", "")):
        message = "the signature does not match: another cluster, another key, or a changed URL"
        raise InvalidTokenError(message)
    return str(credential.principal_arn)


def _presigned(token: str) -> _Signed:
    if len(token) > _TOKEN_BYTES:
        message = "token is too large"
        raise InvalidTokenError(message)
    if not token.startswith(PREFIX):
        message = f"token is missing expected {PREFIX!r} prefix"
        raise InvalidTokenError(message)
    encoded = token.removeprefix(PREFIX)
    try:
        if "=" in encoded or not re.fullmatch(r"[A-Za-z0-9_-]+", encoded):
            message = "token is not unpadded base64url"
            raise InvalidTokenError(message)
        url = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
    except (binascii.Error, ValueError) as error:
        message = "token cannot be decoded"
        raise InvalidTokenError(message) from error
    if url.scheme != "https" or url.path != "/" or url.fragment or "@" in url.netloc:
        message = f"unexpected scheme or path in pre-signed URL: {url.scheme}, {url.path!r}"
        raise InvalidTokenError(message)
    query = parse_qs(url.query, keep_blank_values=True)
    values: dict[str, str] = {}
    for name, found in query.items():
        if len(found) != 1 or name.lower() in values:
            message = f"query parameter with multiple values not supported: {name}"
            raise InvalidTokenError(message)
        if name.lower() not in _PARAMETERS:
            message = f"non-whitelisted query parameter {name!r}"
            raise InvalidTokenError(message)
        values[name.lower()] = found[0]
    return _Signed(url.netloc, url.path, query, values)


def _check_parameters(signed: _Signed, now: datetime.datetime) -> tuple[str, str, str]:
    """Access key, day and region of the signature."""
    values = signed.values
    missing = [name for name in _NEEDED if not values.get(name)]
    if missing:
        message = f"missing query parameters: {', '.join(missing)}"
        raise InvalidTokenError(message)
    if values["action"] != "GetCallerIdentity" or values["version"] != "2011-06-15":
        message = f"unexpected action parameter in pre-signed URL: {values['action']!r}"
        raise InvalidTokenError(message)
    if values["x-amz-algorithm"] != "AWS4-HMAC-SHA256":
        message = "unexpected algorithm"
        raise InvalidTokenError(message)
    expires = values.get("x-amz-expires", "0")
    if not expires.isdigit() or int(expires) > _EXPIRES_MAX:
        message = f"invalid X-Amz-Expires parameter in pre-signed URL: {expires}"
        raise InvalidTokenError(message)
    try:
        signed_at = datetime.datetime.strptime(values["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError as error:
        message = f"error parsing X-Amz-Date parameter {values['x-amz-date']!r}"
        raise InvalidTokenError(message) from error
    if now > signed_at + VALID_FOR or signed_at > now + _AHEAD:
        message = f"X-Amz-Date parameter is expired (15 minute expiration): {values['x-amz-date']}"
        raise InvalidTokenError(message)
    scope = values["x-amz-credential"].split("/")
    if len(scope) != 5 or scope[3:] != ["sts", "aws4_request"] or scope[1] != values["x-amz-date"][:8]:
        message = f"unexpected credential scope {'/'.join(scope[1:])!r}"
        raise InvalidTokenError(message)
    return scope[0], scope[1], scope[2]


def _credential(access_key: str, session_token: str | None) -> ResolvedCredential:
    account = iam_evaluator.find_iam_access_key_account(access_key) or responses._account_from_sts_session(access_key)
    found = iam_evaluator.resolve_credential(access_key, account or responses.get_account_id(), session_token)
    if isinstance(found, CredentialResolutionError):
        raise InvalidTokenError(found.message)
    return found
