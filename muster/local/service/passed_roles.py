"""Which calls hand a role to a service, beside those of SageMaker."""

from __future__ import annotations

import json

from muster.local.calls import Call
from muster.local.service.http_request import EndpointRequest

_ASSOCIATIONS = frozenset(
    {Call("eks", "CreatePodIdentityAssociation"), Call("eks", "UpdatePodIdentityAssociation")},
)


async def passed_role(request: EndpointRequest, call: Call) -> str | None:
    """The role that a call gives to the pods of a cluster; None for a call that gives none."""
    if call not in _ASSOCIATIONS:
        return None
    try:
        document = json.loads(await request.body() or b"{}")
    except ValueError:
        return None
    role = document.get("roleArn") if isinstance(document, dict) else None
    return role if isinstance(role, str) and role else None
