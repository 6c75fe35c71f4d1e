"""On what resource the rights of a call of EKS are checked (Service Authorization Reference, EKS).

MiniStack asks for the cluster every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from urllib.parse import unquote

from ministack.core import iam_actions
from ministack.services import eks

from muster.local.ministack.host import Account
from muster.options.hyperpod.local.eks.access_entries import entry_arn


def install(account: Account) -> None:
    """Check calls about an association or an entry on its own ARN."""
    iam_actions.extract_resource_arn = _extended(iam_actions.extract_resource_arn, account)


def _extended(extract: Callable[..., str], account: Account) -> Callable[..., str]:
    @wraps(extract)
    def extracted(service: str, method: str, path: str, headers: Mapping[str, str], *rest: object) -> str:
        found = _own_arn(account, path) if service == "eks" else None
        return found or extract(service, method, path, headers, *rest)

    return extracted


def _own_arn(account: Account, path: str) -> str | None:
    parts = [unquote(part) for part in path.split("/") if part]
    if len(parts) < 2 or parts[0] != "clusters":
        return None
    cluster = parts[1]
    if len(parts) >= 4 and parts[2] == "pod-identity-associations":
        return account.arn("eks", f"podidentityassociation/{cluster}/{parts[3]}")
    if len(parts) >= 4 and parts[2] == "access-entries":
        principal = unquote("/".join(part for part in path.split("/") if part).split("/access-entries/", 1)[1])
        return _entry_arn(account, cluster, principal.split("/access-policies")[0])
    return account.arn("eks", f"cluster/{cluster}")


def _entry_arn(account: Account, cluster: str, principal: str) -> str:
    entry = eks._access_entries.get(eks._ae_key(cluster, principal))
    if entry:
        return str(entry["accessEntryArn"])
    return entry_arn(account, cluster, principal, "unknown")
