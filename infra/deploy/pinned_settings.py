"""Settings on which running runs depend: their plans name the role, the network and the keys. Pure."""

from __future__ import annotations

from infra.deploy.settings_changes import Change
from infra.settings.settings_file import Tables

_ROLE = "replicas.role_arn"
# The stack's roles are allowed the use of these alone, and reruns use those of their plan.
_ALLOWED = ("replicas.vpc", "replicas.kms_key_arn", "stack.kms_key_arn")


def pinned_changes(deployed: Tables, new: Tables) -> list[Change]:
    """The changes that would take from running runs what their reruns need.

    A network or a key where there was none takes nothing from them.
    """
    changes = [Change(key, _value(deployed, key), _value(new, key)) for key in (_ROLE, *_ALLOWED)]
    return [change for change in changes if change.deployed != change.new and (change.key == _ROLE or change.deployed)]


def _value(tables: Tables, key: str) -> object:
    table, _, name = key.partition(".")
    return tables.get(table, {}).get(name)
