"""Tokens of IAM principals: what a cluster takes, and what it refuses."""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from muster.local.ministack.host import Account
from muster.local.ministack.role_sessions import RoleGrant, role_session
from muster.options.hyperpod.local.eks.tokens import InvalidTokenError, principal_of

ACCOUNT = Account("123456789012", "us-east-1")
GRANT = RoleGrant(f"arn:aws:iam::{ACCOUNT.account_id}:role/team/launcher")
QUERY = "Action=GetCallerIdentity&Version=2011-06-15"
Sign = Callable[..., str]


@pytest.fixture
def sign() -> Sign:
    """Makes tokens with a session's keys; each argument is something else than what a client signs."""
    keys = role_session(ACCOUNT, GRANT, "function")

    def signed(
        *,
        cluster: str = "eks",
        host: str = "sts.us-east-1.amazonaws.com",
        region: str = "us-east-1",
        service: str = "sts",
        query: str = QUERY,
        path: str = "/",
        expires: int = 60,
        age: timedelta = timedelta(),
        header: str = "x-k8s-aws-id",
        secret: str | None = None,
        change: Callable[[str], str] = lambda url: url,
    ) -> str:
        credentials = Credentials(keys.access_key_id, secret or keys.secret_access_key, keys.session_token)
        request = AWSRequest("GET", f"https://{host}{path}?{query}", headers={header: cluster})
        time = datetime.now(UTC) - age
        with patch("botocore.auth.get_current_datetime", return_value=time.replace(tzinfo=None)):
            SigV4QueryAuth(credentials, service, region, expires).add_auth(request)
        return encoded(change(str(request.url)))

    return signed


def encoded(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def test_a_session_is_known_by_its_token(sign: Sign) -> None:
    principal = principal_of(sign(), "eks")
    assert principal == f"arn:aws:sts::{ACCOUNT.account_id}:assumed-role/launcher/function"


def test_a_token_is_taken_for_a_quarter_of_an_hour(sign: Sign) -> None:
    principal_of(sign(age=timedelta(minutes=14, seconds=50)), "eks")
    for age in (timedelta(minutes=15, seconds=10), timedelta(minutes=-6)):
        assert "expired" in refusal(sign(age=age)), age


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cluster": "other"}, "signature"),
    ({"secret": "x" * 40}, "signature"),
    ({"host": "127.0.0.1:4570"}, "hostname"),
    ({"host": "sts.amazonaws.com"}, "hostname"),
    ({"host": "sts.eu-west-1.amazonaws.com"}, "hostname"),
    ({"host": "sts.us-east-1.amazonaws.com.example.com"}, "hostname"),
    ({"service": "s3"}, "scope"),
    ({"header": "x-other"}, "x-k8s-aws-id"),
    ({"query": "Action=AssumeRole&Version=2011-06-15"}, "action"),
    ({"query": "Action=GetCallerIdentity&Version=2012-01-01"}, "action"),
    ({"query": f"{QUERY}&Extra=1"}, "non-whitelisted"),
    ({"expires": 901}, "X-Amz-Expires"),
    ({"path": "/other"}, "path"),
    ({"change": lambda url: url.replace("https:", "http:")}, "scheme"),
    ({"change": lambda url: f"{url}&Action=GetCallerIdentity"}, "multiple"),
    ({"change": lambda url: f"{url}&action=GetCallerIdentity"}, "multiple"),
    ({"change": lambda url: url.replace("X-Amz-Signature=", "X-Amz-Signature=0")}, "signature"),
    ({"change": lambda url: url.split("&X-Amz-Security-Token")[0] + "&X-Amz-Signature=0"}, "missing|invalid"),
]
"""What differs from a client's request, and a word of the reason."""


def test_another_request_is_no_token(sign: Sign) -> None:
    for wrong, why in WRONG:
        assert re.search(why, refusal(sign(**wrong))), wrong


def test_a_text_is_no_token(sign: Sign) -> None:
    for token in ("", "nonsense", "k8s-aws-v1.", "k8s-aws-v1.*", "k8s-aws-v1." + "a" * 5000, "k8s-aws-v2.YQ"):
        assert refusal(token), token
    assert "base64url" in refusal(sign() + "=")


def refusal(token: str) -> str:
    """Why a token is refused."""
    with pytest.raises(InvalidTokenError) as caught:
        principal_of(token, "eks")
    return str(caught.value)


def signed_with(*keys: str) -> str:
    """A token of these keys."""
    request = AWSRequest("GET", f"https://sts.us-east-1.amazonaws.com/?{QUERY}", headers={"x-k8s-aws-id": "eks"})
    SigV4QueryAuth(Credentials(*keys), "sts", "us-east-1", 60).add_auth(request)
    return encoded(str(request.url))


def test_a_key_that_does_not_exist_and_a_session_that_has_ended_make_no_token() -> None:
    assert "invalid" in refusal(signed_with("AKIAEXAMPLE00000", "secret"))
    keys = role_session(ACCOUNT, GRANT, "function", seconds=-1)
    assert "expired" in refusal(signed_with(keys.access_key_id, keys.secret_access_key, keys.session_token))
