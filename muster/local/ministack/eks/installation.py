"""Everything that is different in MiniStack's EKS, installed at once."""

from __future__ import annotations

from muster.local.ministack.eks import access_entries, access_entry_resources, pod_identities, resource_arns
from muster.local.ministack.host import Account


def install(account: Account) -> None:
    """Adapt EKS. Call it once, before anything is served."""
    access_entries.install(account)
    pod_identities.install(account)
    resource_arns.install(account)
    access_entry_resources.install()
