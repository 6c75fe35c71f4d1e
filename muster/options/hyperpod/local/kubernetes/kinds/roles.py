"""Roles and bindings in a namespace: their rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.options.hyperpod.local.kubernetes.objects.resource import Rules
from muster.options.hyperpod.local.kubernetes.objects.status_errors import (
    Document,
    Problem,
    invalid,
    not_served,
    required,
    unsupported,
)

GROUP = "rbac.authorization.k8s.io"


class RoleRules(Rules):
    """Each rule names verbs and what they are for."""

    def prepare(self, new: Document) -> None:
        """A role without rules has an empty list of them, as a server shows it."""
        if new.get("rules") is None:
            new["rules"] = []

    def problems(self, new: Document) -> Sequence[Problem]:
        """Rules without verbs, groups or resources."""
        return [problem for index, rule in enumerate(new["rules"]) for problem in _rule(f"rules[{index}]", rule)]


def _rule(path: str, rule: Document) -> Iterator[Problem]:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        yield invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


class BindingRules(Rules):
    """A binding names a role of its namespace, and subjects of a known kind."""

    def prepare(self, new: Document) -> None:
        """The groups of subjects and roles, where they are left out."""
        for subject in new.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)
        reference = new.get("roleRef")
        if isinstance(reference, dict) and not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP

    def problems(self, new: Document) -> Sequence[Problem]:
        """What is wrong with the reference and the subjects.

        Raises:
            StatusError: 501 for a role of the whole cluster.
        """
        return [*self._reference(new.get("roleRef") or {}), *self._subjects(new)]

    def _reference(self, reference: Document) -> Iterator[Problem]:
        if reference.get("apiGroup", GROUP) != GROUP:
            yield unsupported("roleRef.apiGroup", reference["apiGroup"], [GROUP])
        if reference.get("kind") == "ClusterRole":
            what = "bindings of a ClusterRole"
            raise not_served(what)
        if reference.get("kind") != "Role":
            yield unsupported("roleRef.kind", reference.get("kind", ""), ["Role", "ClusterRole"])
        if not reference.get("name"):
            yield required("roleRef.name")

    def _subjects(self, new: Document) -> Iterator[Problem]:
        for index, subject in enumerate(new.get("subjects") or []):
            path, kind = f"subjects[{index}]", subject.get("kind", "")
            if not subject.get("name"):
                yield required(f"{path}.name")
            if kind == "ServiceAccount":
                # Service accounts have no tokens here: nobody ever asks as one.
                what = "bindings of a service account"
                raise not_served(what)
            if kind not in ("User", "Group"):
                yield unsupported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"])
            elif subject["apiGroup"] != GROUP:
                yield unsupported(f"{path}.apiGroup", subject["apiGroup"], [GROUP])
