"""Which calls hand a role to pods, and what rights they need for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import unquote

from muster.local.counted_calls import Call
from muster.local.ministack.host import Account
from muster.local.service.http_request import EndpointRequest
from muster.local.service.option_services import Right
from muster.options.hyperpod.local.eks.pod_identities import SERVICE_PRINCIPAL

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
