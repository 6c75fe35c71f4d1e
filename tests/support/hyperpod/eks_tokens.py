"""Tokens of IAM principals for an EKS cluster, as a client of AWS makes them."""

import base64

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from muster.contract.aws.partitions import dns_suffix

QUERY = "Action=GetCallerIdentity&Version=2011-06-15"


def encoded(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def signed_with(*keys: str, region: str = "us-east-1") -> str:
    """A token of these keys."""
    host = f"sts.{region}.{dns_suffix(region)}"
    request = AWSRequest("GET", f"https://{host}/?{QUERY}", headers={"x-k8s-aws-id": "eks"})
    SigV4QueryAuth(Credentials(*keys), "sts", region, 60).add_auth(request)
    return encoded(str(request.url))
