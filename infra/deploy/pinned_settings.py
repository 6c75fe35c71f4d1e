"""Settings on which running runs, or stored objects, depend. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.infra.deploy.settings_changes import Change
from muster.infra.settings.settings_file import Tables

_ROLE = "replicas.role_arn"
# The stack's roles are allowed the use of these alone, and reruns use those of their plan.
_ALLOWED = ("replicas.vpc", "replicas.kms_key_arn")
# Each entry allows something that a plan may name.
_LISTS = ("replicas.further_role_arns", "replicas.data", "replicas.data_kms_key_arns", "replicas.policy_arns")
_PREFIXES = "replicas.data"
_CLUSTERS = "hyperpod_clusters"
# The definition of a running execution names the functions as they were called when it began: with an alias or without.
_CALLED = "runs.snap_start"
STACK_KEY = "stack.kms_key_arn"


def pinned_changes(deployed: Tables, new: Tables) -> list[Change]:
    """The changes that would take from running runs what their reruns need.

    A network or a key where there was none, or a longer list, takes nothing from them.
    """
    return [
        change
        for change in _changes(deployed, new, (_ROLE, *_ALLOWED, *_LISTS))
        if change.key == _ROLE
        or (change.key in _ALLOWED and change.deployed)
        or (change.key in _LISTS and _removed(change))
    ] + [*_called_otherwise(deployed, new), *_lost_clusters(deployed, new)]


def _called_otherwise(deployed: Tables, new: Tables) -> list[Change]:
    changes = [Change(_CALLED, bool(_value(deployed, _CALLED)), bool(_value(new, _CALLED)))]
    return [change for change in changes if change.deployed != change.new]


def _lost_clusters(deployed: Tables, new: Tables) -> list[Change]:
    """Clusters that are gone, that have another EKS cluster, or that lack a namespace in which replicas may run."""
    changes = _changes(deployed, new, [f"{_CLUSTERS}.{name}" for name in sorted(deployed.get(_CLUSTERS, {}))])
    return [change for change in changes if _takes_place(change)]


def _takes_place(change: Change) -> bool:
    before, after = change.deployed, change.new or {}
    if before.get("eks_cluster") != after.get("eks_cluster"):
        return True
    return not set(before.get("namespaces", ())) <= set(after.get("namespaces", ()))


def stack_key_change(deployed: Tables, new: Tables) -> Change | None:
    """The change of the stack's key, which would leave the objects under the former key unreadable for its roles."""
    return next((change for change in _changes(deployed, new, (STACK_KEY,)) if change.deployed), None)


def _changes(deployed: Tables, new: Tables, keys: Sequence[str]) -> list[Change]:
    changes = [Change(key, _value(deployed, key), _value(new, key)) for key in keys]
    return [change for change in changes if change.deployed != change.new]


def _removed(change: Change) -> bool:
    """Whether an entry of a list is gone and, for a prefix, no other covers it."""
    kept = change.new or []
    covers = str.startswith if change.key == _PREFIXES else str.__eq__
    return not all(any(covers(entry, other) for other in kept) for entry in change.deployed or [])


def _value(tables: Tables, key: str) -> object:
    table, _, name = key.partition(".")
    return tables.get(table, {}).get(name)
