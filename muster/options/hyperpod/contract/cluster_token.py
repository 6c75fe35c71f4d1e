"""The token with which a caller shows its principal to a cluster: a signed request that EKS sends to STS."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from botocore.model import ServiceId
from botocore.signers import RequestSigner

from muster.contract.aws.partitions import dns_suffix

if TYPE_CHECKING:
    from botocore.session import Session

PREFIX = "k8s-aws-v1."
_CLUSTER_HEADER = "x-k8s-aws-id"
# aws-iam-authenticator takes a request that was signed for 60 seconds for a quarter of an hour.
_SIGNED_SECONDS = 60
SECONDS_VALID = 14 * 60
"""AWS's own clients renew a token after 14 of its 15 minutes."""


def cluster_token(session: Session, eks_cluster: str) -> str:
    """A token for the Kubernetes API of `eks_cluster`, valid for a quarter of an hour.

    It is a credential: it must not be in a message or a log. The request names the regional host itself: EKS takes no
    other, whatever endpoint the clients of this process use.

    Raises:
        RuntimeError: the process has no credentials or no region.
    """
    credentials, region = session.get_credentials(), session.get_config_variable("region")
    if credentials is None or region is None:
        message = "there are no credentials, or no region"
        raise RuntimeError(message)
    events = session.get_component("event_emitter")
    signer = RequestSigner(ServiceId("STS"), region, "sts", "v4", credentials, events)
    request = {
        "method": "GET",
        "url": f"https://sts.{region}.{dns_suffix(region)}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {_CLUSTER_HEADER: eks_cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=region, expires_in=_SIGNED_SECONDS, operation_name="")
    return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
