"""The EKS clusters of embedded Kubernetes clusters, and who their users are."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from ministack.core import responses
from ministack.services import eks

from muster.local.ministack.host import Account
from muster.options.hyperpod.contract.object_identity import IDENTITY_AGENT, OPERATOR
from muster.options.hyperpod.local.kubernetes.rights import AUTHENTICATED, AccessPolicy, User

_log = logging.getLogger("muster.local.eks")
_SESSION = re.compile(r"arn:[^:]+:sts::(\d+):assumed-role/([^/]+)/(.+)")
_TOKEN_BYTES = 4 * 1024
_UNPADDED = re.compile(r"[\w.-]+", re.ASCII)
# Of the presigned request in a token, in lower case (kubernetes-sigs/aws-iam-authenticator, pkg/token).
_PARAMETERS = frozenset(
    {
        *("action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires"),
        *("x-amz-security-token", "x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent"),
    }
)


def register(account: Account, name: str, endpoint: str, authority: str, version: str) -> None:
    """Let DescribeCluster name an embedded cluster. Root, who has created it, is its administrator.

    `endpoint` and `authority`, the certificate in base64, are those of its API, and `version` is of Kubernetes.
    """
    with responses.request_scope(account.account_id, account.region):
        root = f"arn:{account.partition}:iam::{account.account_id}:root"
        body = {
            "name": name,
            "version": version,
            "roleArn": "",  # MiniStack would look it up; EKS's own role is set below
            "accessConfig": {
                "authenticationMode": "API_AND_CONFIG_MAP",
                "bootstrapClusterCreatorAdminPermissions": True,
            },
        }
        eks._create_cluster(body, root)
        cluster = eks._clusters[name]
        cluster.update(
            arn=account.arn("eks", f"cluster/{name}"),
            roleArn=f"arn:{account.partition}:iam::{account.account_id}:role/aws-service-role/eks.amazonaws.com/"
            "AWSServiceRoleForAmazonEKS",
            endpoint=endpoint,
            certificateAuthority={"data": authority},
            status="ACTIVE",
        )
        for addon in (OPERATOR, IDENTITY_AGENT):
            eks._create_addon(name, {"addonName": addon})


def authenticator(account: Account, cluster: str) -> Callable[[str], User | None]:
    """Who is behind a token for a cluster; None for one that is refused."""

    def authenticate(token: str) -> User | None:
        with responses.request_scope(account.account_id, account.region):
            principal = principal_of(token, cluster)
            if principal is None:
                _log.info("a token was refused by %s", cluster)
                return None
            return _user(account, cluster, principal)

    return authenticate


def principal_of(token: str, cluster: str) -> str | None:
    """The ARN of the IAM principal whose token for a cluster this is; of a role that of its session. None: no one's.

    A token is a presigned GetCallerIdentity, whose signed headers have the name of the cluster. MiniStack verifies it.
    EKS's authenticator also refuses long tokens, another alphabet, padding, and a URL with what it does not know.
    """
    decoded = eks._decode_aws_iam_token(token)
    if decoded is None or len(token) > _TOKEN_BYTES or not _UNPADDED.fullmatch(token):
        return None
    url, query = decoded
    if (url.path, url.netloc) != ("/", url.hostname) or not _PARAMETERS.issuperset(map(str.lower, query)):
        return None
    credential = eks._verify_eks_token(token, cluster)
    return None if credential is None else str(credential.principal_arn)


def _user(account: Account, cluster: str, principal: str) -> User | None:
    """The user that an access entry makes of a principal; None without one: a right to eks:* is none in Kubernetes."""
    if cluster not in eks._clusters:
        return None
    entry = eks._access_entry_for_principal(cluster, account.account_id, account.region, principal)
    if entry is None:
        return None
    associations = eks._access_policy_associations(cluster, account.account_id, account.region)
    policies = tuple(
        _policy(policy, association["accessScope"])
        for owner, policy, association in associations
        if owner == entry["principalArn"]
    )
    groups = (AUTHENTICATED, *dict.fromkeys(entry.get("kubernetesGroups") or ()))
    name = principal.replace("@", "-")  # the name of a session, as EKS writes it
    return User(name, groups, policies, _short(principal))


def _policy(arn: str, scope: dict[str, Any]) -> AccessPolicy:
    namespaces = tuple(scope.get("namespaces") or ()) if scope.get("type") == "namespace" else None
    return AccessPolicy(eks._ACCESS_POLICY_RULES[eks._access_policy_name(arn)], namespaces)


def _short(arn: str) -> str:
    """As the counts of calls name a caller: a role, `user/NAME`, `root`."""
    found = _SESSION.fullmatch(arn)
    return found[2] if found else arn.split(":", 5)[5]
