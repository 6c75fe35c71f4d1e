"""Rules of RBAC: what one covers, and what covers one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document
from muster.options.hyperpod.local.kubernetes.rights.users import Attributes

_ANY = "*"


@dataclass(frozen=True)
class AccessRule:
    """A `PolicyRule`."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Of requests for no resource; a role of a namespace has none."""

    @classmethod
    def of(cls, document: Document) -> AccessRule:
        """A rule from the document of a role."""
        return cls(
            verbs=tuple(document.get("verbs") or ()),
            groups=tuple(document.get("apiGroups") or ()),
            resources=tuple(document.get("resources") or ()),
            names=tuple(document.get("resourceNames") or ()),
        )

    def allows(self, asked: Attributes) -> bool:
        """Whether the rule gives the right to a request."""
        if not _has(self.verbs, asked.verb):
            return False
        if asked.path:
            return any(_path_covers(path, asked.path) for path in self.paths)
        return (
            _has(self.groups, asked.group)
            and any(_resource_covers(resource, asked.full_resource) for resource in self.resources)
            and (not self.names or asked.name in self.names)
        )

    def __str__(self) -> str:
        """As in messages: `{APIGroups:["x"], Resources:["y"], Verbs:["create"]}`."""
        parts = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        shown = (f"{name}:{json.dumps(list(values))}" for name, values in parts if values)
        return "{" + ", ".join(shown) + "}"


def rules_of(document: Document) -> list[AccessRule]:
    """The rules of a role."""
    return [AccessRule.of(rule) for rule in document.get("rules") or []]


def uncovered(held: Sequence[AccessRule], wanted: Iterable[AccessRule]) -> list[AccessRule]:
    """The rights among `wanted`, one verb and resource each, that no rule of `held` gives; compacted for a message."""
    missing = [
        single for rule in wanted for single in _singles(rule) if not any(_covers(have, single) for have in held)
    ]
    compact: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for rule in missing:
        compact.setdefault((rule.groups, rule.resources, rule.names), []).append(rule.verbs[0])
    return [AccessRule(tuple(dict.fromkeys(verbs)), *what) for what, verbs in compact.items()]


def _singles(rule: AccessRule) -> Iterator[AccessRule]:
    for verb in rule.verbs:
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    yield AccessRule((verb,), (group,), (resource,), (name,) if name else ())


def _covers(have: AccessRule, single: AccessRule) -> bool:
    """Whether a rule gives a right of one verb to one resource."""
    return (
        _has(have.verbs, single.verbs[0])
        and _has(have.groups, single.groups[0])
        and any(_resource_covers(resource, single.resources[0]) for resource in have.resources)
        and (not have.names or (bool(single.names) and single.names[0] in have.names))
    )


def _has(values: Sequence[str], wanted: str) -> bool:
    return _ANY in values or wanted in values


def _resource_covers(resource: str, wanted: str) -> bool:
    """`*` is everything; `*/log` is that subresource of everything."""
    if resource in (_ANY, wanted):
        return True
    return resource.startswith("*/") and "/" in wanted and wanted.split("/", 1)[1] == resource[2:]


def _path_covers(path: str, wanted: str) -> bool:
    return path in (_ANY, wanted) or (path.endswith(_ANY) and wanted.startswith(path[:-1]))
