"""Tokens for the API of an embedded cluster."""

from __future__ import annotations

import base64

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from muster.local.cloud_state import CloudState


def eks_token(cluster: str, region: str, state: CloudState) -> str:
    """A token of the cloud's root user, as `aws eks get-token` makes it."""
    url = f"https://sts.{region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
    request = AWSRequest("GET", url, headers={"x-k8s-aws-id": cluster})
    SigV4QueryAuth(Credentials(state.access_key_id, state.secret_access_key), "sts", region, 60).add_auth(request)
    return "k8s-aws-v1." + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")
