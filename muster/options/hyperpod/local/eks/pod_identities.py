"""EKS Pod Identity: associations as EKS takes them, and the credentials that a pod gets from one."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ministack.core import iam_evaluator, responses
from ministack.services import eks

from muster.local.counted_calls import Call
from muster.local.ministack.host import Account
from muster.local.ministack.role_sessions import RoleCredentials, RoleGrant, role_admits, role_session
from muster.local.sagemaker.container_credentials import CredentialEndpoint, NoCredentialsError
from muster.local.service.http_request import EndpointRequest
from muster.local.service.option_services import Right
from muster.options.hyperpod.local.eks.access_entries import Response, checked, refused

SERVICE_PRINCIPAL = "pods.eks.amazonaws.com"
_POLICY_CHARACTERS = 2_048  # STS: the inline session policy of AssumeRole
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SESSION_CHARACTERS = 64


def install(account: Account) -> None:
    """Let MiniStack refuse what EKS refuses, and what Muster never sends."""
    eks._create_pod_identity_association = checked(eks._create_pod_identity_association, partial(_problem, account))
    eks._update_pod_identity_association = _not_served
    eks._pod_identity_association_arn = lambda cluster, identifier: account.arn(
        "eks", f"podidentityassociation/{cluster}/{identifier}"
    )


def _not_served(_cluster: str, _identifier: str, _body: dict[str, Any]) -> Response:
    return refused("NotImplemented", "The embedded cloud does not have UpdatePodIdentityAssociation.", 501)


def _problem(account: Account, cluster: str, body: Mapping[str, Any]) -> Response | None:
    """What EKS refuses of an association, and what Muster never asks for."""
    if cluster not in eks._clusters:
        return None
    if not body.get("disableSessionTags"):
        return refused("NotImplemented", "The embedded cloud has no session tags: set disableSessionTags.", 501)
    wrong = next(_mistakes(account, cluster, body), None)
    return None if wrong is None else refused("InvalidParameterException", wrong)


def _mistakes(account: Account, cluster: str, body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("namespace", "serviceAccount"):
        value = str(body.get(name, ""))
        if value and not _NAME.fullmatch(value):
            yield f"{name} is not a valid name of Kubernetes: {value}"
    policy, role = body.get("policy") or "", str(body.get("roleArn", ""))
    if len(policy) > _POLICY_CHARACTERS:
        yield f"policy has {len(policy)} characters; at most {_POLICY_CHARACTERS} are allowed."
    if policy and (wrong := iam_evaluator.validate_policy_document(policy)):
        yield f"policy is malformed: {wrong}"
    if role and not trusts_pods(account, cluster, role):
        yield (
            f"Trust policy of role {role} does not allow {SERVICE_PRINCIPAL} to perform sts:AssumeRole and "
            "sts:TagSession, or the role does not exist."
        )


def trusts_pods(account: Account, cluster: str, role: str) -> bool:
    """Whether the role exists and its trust policy lets EKS assume it with session tags."""
    # EKS asks for both actions, whatever an association says of session tags.
    grant = RoleGrant(role, (("eks-cluster-name", cluster),))
    source = account.arn("eks", f"cluster/{cluster}")
    return role.count(":") == 5 and role_admits(account, grant, SERVICE_PRINCIPAL, source)


class PodIdentities:
    """The credentials of a cluster's pods: what the EKS Pod Identity agent of a node gives them."""

    def __init__(self, account: Account, cluster: str) -> None:
        self._account = account
        self._cluster = cluster
        self._endpoint = CredentialEndpoint()

    def variables(self, document: Mapping[str, Any], token_file: Path) -> dict[str, str]:
        """The environment variables with which a pod's SDKs find its credentials; none without an association.

        The pod's processes must be able to read `token_file`, which this writes; its removal ends the offer.
        """
        metadata, account = document["metadata"], document["spec"]["serviceAccountName"]
        place = metadata["namespace"], account
        if self._association(place) is None:
            return {}
        region = self._account.region
        return {
            **self._endpoint.offer(lambda seconds: self._credentials(place, metadata["name"], seconds), token_file),
            "AWS_STS_REGIONAL_ENDPOINTS": "regional",
            "AWS_DEFAULT_REGION": region,
            "AWS_REGION": region,
        }

    def _association(self, place: tuple[str, str]) -> dict[str, Any] | None:
        """That of a namespace and a service account."""
        with responses.request_scope(self._account.account_id, self._account.region):
            for key, found in list(eks._pod_identity_associations.items()):
                if key.startswith(f"{self._cluster}\x00") and (found["namespace"], found["serviceAccount"]) == place:
                    return dict(found)
        return None

    def _credentials(self, place: tuple[str, str], pod: str, seconds: float) -> RoleCredentials:
        """New credentials from the association as it is now.

        Raises:
            NoCredentialsError: it is gone, or its role is, or the role does not trust EKS any more.
        """
        found = self._association(place)
        if found is None:
            message = f"no pod identity association for {'/'.join(place)}"
            raise NoCredentialsError(message)
        if not trusts_pods(self._account, self._cluster, found["roleArn"]):
            message = f"{SERVICE_PRINCIPAL} may not assume {found['roleArn']}"
            raise NoCredentialsError(message)
        grant = RoleGrant(found["roleArn"], policy=found.get("policy", ""))
        name = f"eks-{self._cluster}-{pod}"[: _SESSION_CHARACTERS - 9] + f"-{secrets.token_hex(4)}"
        return role_session(self._account, grant, name, seconds)


_ASSOCIATION = Call("eks", "CreatePodIdentityAssociation")


async def rights_to_pass(request: EndpointRequest, call: Call, account: Account) -> Sequence[Right]:
    """What a call that gives a role to the pods of a cluster needs: to pass and read it, and to tag the association."""
    if call != _ASSOCIATION:
        return ()
    try:
        document = json.loads(await request.body() or b"{}")
    except ValueError:
        return ()
    role, tags = (document.get("roleArn"), document.get("tags")) if isinstance(document, dict) else (None, None)
    if not isinstance(role, str) or not role:
        return ()
    rights: list[Right] = [
        ("iam:PassRole", role, {"iam:PassedToService": SERVICE_PRINCIPAL}),
        ("iam:GetRole", role, {}),
    ]
    if isinstance(tags, dict) and tags:
        keys: dict[str, object] = {f"aws:RequestTag/{name}": value for name, value in tags.items()}
        association = account.arn("eks", f"podidentityassociation/{unquote(request.path).split('/')[2]}/a-new")
        rights.append(("eks:TagResource", association, {**keys, "aws:TagKeys": list(tags)}))
    return rights
