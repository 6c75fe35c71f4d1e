"""On what resource the rights of a call of EKS are checked (Service Authorization Reference, EKS).

MiniStack asks for the cluster every time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from ministack.core import iam_actions
from ministack.services import eks

from muster.local.ministack.host import Account
from muster.options.hyperpod.local.eks.access_entries import entry_arn

_PATH = re.compile(r"/clusters/(?P<cluster>[^/]+)(/(?P<kind>pod-identity-associations|access-entries)/(?P<name>.+))?")


def install(account: Account) -> None:
    """Check calls about an association or an entry on its own ARN."""
    iam_actions.extract_resource_arn = partial(_extract, iam_actions.extract_resource_arn, account)


def _extract(extract: Callable[..., str], account: Account, service: str, method: str, path: str, *rest: Any) -> str:
    found = _own_arn(account, path) if service == "eks" else None
    return found or extract(service, method, path, *rest)


def _own_arn(account: Account, path: str) -> str | None:
    found = _PATH.match(path)
    if found is None:
        return None
    cluster, name = unquote(found["cluster"]), unquote(found["name"] or "")
    if not name:
        return account.arn("eks", f"cluster/{cluster}")
    if found["kind"] == "pod-identity-associations":
        return account.arn("eks", f"podidentityassociation/{cluster}/{name}")
    principal = name.split("/access-policies")[0]
    entry = eks._access_entries.get(eks._ae_key(cluster, principal))
    return str(entry["accessEntryArn"]) if entry else entry_arn(account, cluster, principal, "unknown")
