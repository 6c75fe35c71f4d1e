"""Settings on which running runs, or stored objects, depend. Pure."""

from __future__ import annotations

from muster.infra.deploy.settings_changes import Change, setting_changes
from muster.infra.settings.stack_settings import Tables

_ROLE = "replicas.role_arn"
# The stack's roles are allowed the use of these alone, and reruns use those of their plan.
_ALLOWED = ("replicas.vpc", "replicas.kms_key_arn")
# Each entry allows something that a plan may name.
_LISTS = ("replicas.further_role_arns", "replicas.data", "replicas.data_kms_key_arns", "replicas.policy_arns")
_PREFIXES = "replicas.data"
_CLUSTERS = "hyperpod_clusters."
# The definition of a running execution names the functions as they were called when it began: with an alias or without.
_CALLED = "runs.snap_start"
STACK_KEY = "stack.kms_key_arn"


def pinned_changes(deployed: Tables, new: Tables) -> list[Change]:
    """The changes that would take from running runs what their reruns need.

    A network or a key where there was none, or a longer list, takes nothing from them.
    """
    return [change for change in setting_changes(deployed, new) if _is_pinned(change)]


def stack_key_change(deployed: Tables, new: Tables) -> Change | None:
    """The change of the stack's key, which would leave the objects under the former key unreadable for its roles."""
    changes = setting_changes(deployed, new)
    return next((change for change in changes if change.key == STACK_KEY and change.deployed), None)


def _is_pinned(change: Change) -> bool:
    if change.key == _CALLED:
        return bool(change.deployed) != bool(change.new)
    if change.key in _ALLOWED:
        return bool(change.deployed)
    if change.key in _LISTS:
        return _removes(change)
    if change.key.startswith(_CLUSTERS):
        return change.deployed is not None and _takes_place(change)
    return change.key == _ROLE


def _takes_place(change: Change) -> bool:
    """Whether a cluster is gone, has another EKS cluster, or lacks a namespace in which replicas may run."""
    before, after = change.deployed, change.new or {}
    if before.get("eks_cluster") != after.get("eks_cluster"):
        return True
    return not set(before.get("namespaces", ())) <= set(after.get("namespaces", ()))


def _removes(change: Change) -> bool:
    """Whether an entry of a list is gone and, for a prefix, no other covers it."""
    kept = change.new or []
    covers = str.startswith if change.key == _PREFIXES else str.__eq__
    return not all(any(covers(entry, other) for other in kept) for entry in change.deployed or [])
