"""Which calls hand a role to a service, beside those of SageMaker, and what rights they need for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from muster.local.counted_calls import Call
from muster.local.ministack.host import Account
from muster.local.service.http_request import EndpointRequest
from muster.options.hyperpod.local.eks.pod_identities import SERVICE_PRINCIPAL

_ASSOCIATION = Call("eks", "CreatePodIdentityAssociation")


@dataclass(frozen=True)
class PassedRole:
    """A role that a call gives to the pods of a cluster, with the tags of the association."""

    cluster: str
    role: str
    tags: Mapping[str, str] = field(default_factory=dict)

    def rights(self, account: Account) -> Iterator[tuple[str, str, Mapping[str, object]]]:
        """Action, resource and condition keys of each right that the caller needs beside the one to the call."""
        yield "iam:PassRole", self.role, {"iam:PassedToService": SERVICE_PRINCIPAL}
        yield "iam:GetRole", self.role, {}
        if self.tags:
            keys: dict[str, object] = {f"aws:RequestTag/{name}": value for name, value in self.tags.items()}
            association = account.arn("eks", f"podidentityassociation/{self.cluster}/a-new")
            yield "eks:TagResource", association, {**keys, "aws:TagKeys": list(self.tags)}


async def passed_role(request: EndpointRequest, call: Call) -> PassedRole | None:
    """The role that a call gives to the pods of a cluster; None for a call that gives none."""
    if call != _ASSOCIATION:
        return None
    try:
        document = json.loads(await request.body() or b"{}")
    except ValueError:
        return None
    role = document.get("roleArn") if isinstance(document, dict) else None
    if not isinstance(role, str) or not role:
        return None
    tags = document.get("tags")
    return PassedRole(unquote(request.path).split("/")[2], role, tags if isinstance(tags, dict) else {})
