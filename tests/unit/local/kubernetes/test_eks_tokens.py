"""Tokens of IAM principals: what a cluster takes, and what it refuses."""

import subprocess
import sys
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
from muster.options.hyperpod.local.eks.embedded_clusters import principal_of
from tests.support.hyperpod.eks_tokens import QUERY, encoded, signed_with
from tests.support.source_patch import ROOT

ACCOUNT = Account("123456789012", "us-east-1")
GRANT = RoleGrant(f"arn:aws:iam::{ACCOUNT.account_id}:role/team/launcher")
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


def test_a_session_is_known_by_its_token(sign: Sign) -> None:
    principal = principal_of(sign(), "eks")
    assert principal == f"arn:aws:sts::{ACCOUNT.account_id}:assumed-role/launcher/function"


def test_a_token_is_taken_for_a_quarter_of_an_hour(sign: Sign) -> None:
    assert principal_of(sign(age=timedelta(minutes=14, seconds=50)), "eks")
    for age in (timedelta(minutes=15, seconds=10), timedelta(minutes=-6)):
        assert is_refused(sign(age=age)), age


IN_CHINA = f"""
from muster.local.ministack.partition_source import read_for_region
read_for_region("cn-north-1")
from muster.local.ministack.host import Account
from muster.local.ministack.role_sessions import RoleGrant, role_session
from muster.options.hyperpod.local.eks.embedded_clusters import principal_of
from tests.support.hyperpod.eks_tokens import signed_with
account = Account("{ACCOUNT.account_id}", "cn-north-1")
keys = role_session(account, RoleGrant("arn:aws-cn:iam::{ACCOUNT.account_id}:role/launcher"), "function")
token = signed_with(keys.access_key_id, keys.secret_access_key, keys.session_token, region="cn-north-1")
print(principal_of(token, "eks"))
"""


def test_a_session_is_known_in_a_partition_with_a_domain_of_its_own() -> None:
    found = subprocess.run([sys.executable, "-c", IN_CHINA], cwd=ROOT, check=True, capture_output=True, text=True)
    assert found.stdout == f"arn:aws-cn:sts::{ACCOUNT.account_id}:assumed-role/launcher/function\n"


WRONG: list[dict[str, Any]] = [
    {"cluster": "other"},
    {"secret": "x" * 40},
    {"host": "127.0.0.1:4570"},
    {"host": "sts.amazonaws.com"},
    {"host": "sts.eu-west-1.amazonaws.com"},
    {"host": "sts.us-east-1.amazonaws.com.example.com"},
    {"host": "sts.us-east-1.amazonaws.com:8443"},
    {"service": "s3"},
    {"header": "x-other"},
    {"query": "Action=AssumeRole&Version=2011-06-15"},
    {"query": "Action=GetCallerIdentity&Version=2012-01-01"},
    {"query": f"{QUERY}&Extra=1"},
    {"expires": 901},
    {"path": "/other"},
    {"path": ""},
    {"query": f"{QUERY}&X-Amz-User-Agent={'a' * 4096}"},
    {"change": lambda url: url.replace("https:", "http:")},
    {"change": lambda url: f"{url}&Action=GetCallerIdentity"},
    {"change": lambda url: f"{url}&action=GetCallerIdentity"},
    {"change": lambda url: url.replace("X-Amz-Signature=", "X-Amz-Signature=0")},
    {"change": lambda url: url.split("&X-Amz-Security-Token")[0] + "&X-Amz-Signature=0"},
]
"""What differs from a client's request."""


def test_another_request_is_no_token(sign: Sign) -> None:
    for wrong in WRONG:
        assert is_refused(sign(**wrong)), wrong


def test_a_text_is_no_token(sign: Sign) -> None:
    for token in ("", "nonsense", "k8s-aws-v1.", "k8s-aws-v1.*", "k8s-aws-v1." + "a" * 5000, "k8s-aws-v2.YQ"):
        assert is_refused(token), token
    token = sign()
    for other in ("=", "\n", "!"):
        assert is_refused(token + other), other
        assert is_refused(token[:40] + other + token[40:]), other
    # Whether a text needs one of the two letters in which the alphabets of base64 differ depends on the text.
    differing = sign(query=f"{QUERY}&X-Amz-User-Agent=~~~???~~~")
    assert "_" in differing or "-" in differing
    assert not is_refused(differing)
    assert is_refused(differing.replace("-", "+").replace("_", "/").replace("k8s+aws+v1", "k8s-aws-v1"))


def is_refused(token: str) -> bool:
    """Whether it is no one's."""
    return principal_of(token, "eks") is None


def test_a_key_that_does_not_exist_and_a_session_that_has_ended_make_no_token() -> None:
    assert is_refused(signed_with("AKIAEXAMPLE00000", "secret"))
    keys = role_session(ACCOUNT, GRANT, "function", seconds=-1)
    assert is_refused(signed_with(keys.access_key_id, keys.secret_access_key, keys.session_token))
    keys = role_session(ACCOUNT, GRANT, "function")
    assert not is_refused(signed_with(keys.access_key_id, keys.secret_access_key, keys.session_token))
