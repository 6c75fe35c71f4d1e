"""EKS Pod Identity: associations as EKS takes them, and the credentials that a pod gets from one."""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ministack.core import iam_evaluator, responses
from ministack.services import eks, iam

from muster.local.counted_calls import Call
from muster.local.ministack.host import Account
from muster.local.ministack.role_sessions import RoleCredentials, RoleGrant, role_admits, role_session
from muster.local.sagemaker.container_credentials import CredentialEndpoint, NoCredentialsError
from muster.local.service.http_request import EndpointRequest
from muster.local.service.option_services import Right
from muster.options.hyperpod.local.eks.access_entries import Response, refused

SERVICE_PRINCIPAL = "pods.eks.amazonaws.com"
_POLICY_CHARACTERS = 2_048  # STS: the inline session policy of AssumeRole
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_SESSION_CHARACTERS = 64
_TAG_CHARACTERS = 256


@dataclass(frozen=True)
class _Pod:
    namespace: str
    service_account: str
    name: str
    uid: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> _Pod:
        metadata, account = document["metadata"], document["spec"].get("serviceAccountName") or "default"
        return cls(metadata["namespace"], account, metadata["name"], metadata["uid"])


def install(account: Account) -> None:
    """Let MiniStack refuse what EKS refuses, and what Muster never sends."""
    eks._create_pod_identity_association = _checked_creation(eks._create_pod_identity_association, account)
    eks._update_pod_identity_association = _not_served
    eks._pod_identity_association_arn = _arn(account)


def _arn(account: Account) -> Callable[[str, str], str]:
    def arn(cluster: str, identifier: str) -> str:
        return account.arn("eks", f"podidentityassociation/{cluster}/{identifier}")

    return arn


def _checked_creation(
    create: Callable[[str, dict[str, Any]], Response], account: Account
) -> Callable[[str, dict[str, Any]], Response]:
    @functools.wraps(create)
    def created(cluster: str, body: dict[str, Any]) -> Response:
        if cluster not in eks._clusters:
            return create(cluster, body)
        for name in ("namespace", "serviceAccount"):
            value = str(body.get(name, ""))
            if value and not _NAME.fullmatch(value):
                return refused("InvalidParameterException", f"{name} is not a valid name of Kubernetes: {value}")
        return _problem(account, cluster, body) or create(cluster, body)

    return created


def _not_served(_cluster: str, _identifier: str, _body: dict[str, Any]) -> Response:
    return refused("NotImplemented", "The embedded cloud does not have UpdatePodIdentityAssociation.", 501)


def _problem(account: Account, cluster: str, body: Mapping[str, Any]) -> Response | None:
    """What EKS refuses of an association."""
    policy, role = body.get("policy"), str(body.get("roleArn", ""))
    if policy and not body.get("disableSessionTags"):
        return refused(
            "InvalidParameterException", "disableSessionTags must be set to true when a policy is specified."
        )
    if policy and len(policy) > _POLICY_CHARACTERS:
        return refused(
            "InvalidParameterException",
            f"policy has {len(policy)} characters; at most {_POLICY_CHARACTERS} are allowed.",
        )
    if policy and (wrong := iam_evaluator.validate_policy_document(policy)):
        return refused("InvalidParameterException", f"policy is malformed: {wrong}")
    if role and not trusts_pods(account, cluster, role):
        return refused(
            "InvalidParameterException",
            f"Trust policy of role {role} does not allow {SERVICE_PRINCIPAL} to perform sts:AssumeRole and "
            "sts:TagSession, or the role does not exist.",
        )
    return None


def trusts_pods(account: Account, cluster: str, role: str) -> bool:
    """Whether the role exists and its trust policy lets EKS assume it with session tags."""
    parts = role.split(":")
    if len(parts) != 6 or iam._roles.get_scoped(parts[4], None, role.rsplit("/", 1)[-1]) is None:
        return False
    # EKS asks for both actions, whatever an association says of session tags.
    grant = RoleGrant(role, (("eks-cluster-name", cluster),))
    return role_admits(account, grant, SERVICE_PRINCIPAL, account.arn("eks", f"cluster/{cluster}"))


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
        pod = _Pod.of(document)
        if self._association(pod) is None:
            return {}
        region = self._account.region
        return {
            **self._endpoint.offer(lambda seconds: self._credentials(pod, seconds), token_file),
            "AWS_STS_REGIONAL_ENDPOINTS": "regional",
            "AWS_DEFAULT_REGION": region,
            "AWS_REGION": region,
        }

    def _association(self, pod: _Pod) -> dict[str, Any] | None:
        with responses.request_scope(self._account.account_id, self._account.region):
            for key, found in list(eks._pod_identity_associations.items()):
                if key.startswith(f"{self._cluster}\x00") and (found["namespace"], found["serviceAccount"]) == (
                    pod.namespace,
                    pod.service_account,
                ):
                    return dict(found)
        return None

    def _credentials(self, pod: _Pod, seconds: float) -> RoleCredentials:
        """New credentials from the association as it is now.

        Raises:
            NoCredentialsError: it is gone, or its role is, or the role does not trust EKS any more.
        """
        found = self._association(pod)
        if found is None:
            message = f"no pod identity association for {pod.namespace}/{pod.service_account}"
            raise NoCredentialsError(message)
        if not trusts_pods(self._account, self._cluster, found["roleArn"]):
            message = f"{SERVICE_PRINCIPAL} may not assume {found['roleArn']}"
            raise NoCredentialsError(message)
        tags = () if found.get("disableSessionTags") else self._tags(pod)
        grant = RoleGrant(found["roleArn"], tags, found.get("policy", ""))
        name = f"eks-{self._cluster}-{pod.name}"[: _SESSION_CHARACTERS - 9] + f"-{secrets.token_hex(4)}"
        return role_session(self._account, grant, name, seconds)

    def _tags(self, pod: _Pod) -> tuple[tuple[str, str], ...]:
        return tuple(
            (name, value[:_TAG_CHARACTERS])
            for name, value in (
                ("eks-cluster-arn", self._account.arn("eks", f"cluster/{self._cluster}")),
                ("eks-cluster-name", self._cluster),
                ("kubernetes-namespace", pod.namespace),
                ("kubernetes-service-account", pod.service_account),
                ("kubernetes-pod-name", pod.name),
                ("kubernetes-pod-uid", pod.uid),
            )
        )


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
