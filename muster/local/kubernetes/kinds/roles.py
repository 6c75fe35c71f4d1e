"""Roles and bindings: their rules, and those that every cluster has from the beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from muster.local.kubernetes.objects.resource import Rules
from muster.local.kubernetes.objects.status_errors import Document, Problem, invalid, required, unsupported

GROUP = "rbac.authorization.k8s.io"


class RoleRules(Rules):
    """Each rule names verbs and what they are for."""

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def prepare(self, new: Document, old: Document | None) -> None:
        """A role without rules has an empty list of them, as a server shows it."""
        _ = old
        if new.get("rules") is None:
            new["rules"] = []

    def problems(self, new: Document, old: Document | None) -> Sequence[Problem]:
        """Rules without verbs, groups or resources."""
        _ = old
        return [problem for index, rule in enumerate(new["rules"]) for problem in self._rule(f"rules[{index}]", rule)]

    def _rule(self, path: str, rule: Document) -> Iterator[Problem]:
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            if self._namespaced:
                urls = rule["nonResourceURLs"]
                yield invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                urls = rule["nonResourceURLs"]
                text = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, text)
            return
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


class BindingRules(Rules):
    """A binding keeps its role, and names subjects of a known kind."""

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def prepare(self, new: Document, old: Document | None) -> None:
        """The groups of subjects and roles, where they are left out."""
        _ = old
        for subject in new.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)
        reference = new.get("roleRef")
        if isinstance(reference, dict) and not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP

    def problems(self, new: Document, old: Document | None) -> Sequence[Problem]:
        """What is wrong with the reference and the subjects."""
        return [*self._reference(new, old), *self._subjects(new)]

    def _reference(self, new: Document, old: Document | None) -> Iterator[Problem]:
        reference: Any = new.get("roleRef") or {}
        if old is not None and reference != old.get("roleRef"):
            yield invalid("roleRef", reference, "cannot change roleRef")
            return
        if reference.get("apiGroup", GROUP) != GROUP:
            yield unsupported("roleRef.apiGroup", reference["apiGroup"], [GROUP])
        kinds = ["Role", "ClusterRole"] if self._namespaced else ["ClusterRole"]
        if reference.get("kind") not in kinds:
            yield unsupported("roleRef.kind", reference.get("kind", ""), kinds)
        if not reference.get("name"):
            yield required("roleRef.name")

    def _subjects(self, new: Document) -> Iterator[Problem]:
        for index, subject in enumerate(new.get("subjects") or []):
            path, kind = f"subjects[{index}]", subject.get("kind", "")
            if not subject.get("name"):
                yield required(f"{path}.name")
            if kind == "ServiceAccount":
                if not subject.get("namespace"):
                    yield required(f"{path}.namespace")
                if subject.get("apiGroup"):
                    yield unsupported(f"{path}.apiGroup", subject["apiGroup"], [""])
            elif kind in ("User", "Group"):
                if subject["apiGroup"] != GROUP:
                    yield unsupported(f"{path}.apiGroup", subject["apiGroup"], [GROUP])
            else:
                yield unsupported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"])


_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_VIEW = [{"apiGroups": [""], "resources": ["configmaps", "events", "namespaces", "pods", "pods/log"], "verbs": _READ}]
_EDIT = [
    *_VIEW,
    {"apiGroups": [""], "resources": ["configmaps", "events", "pods", "secrets", "serviceaccounts"], "verbs": _WRITE},
    {"apiGroups": [""], "resources": ["secrets", "serviceaccounts"], "verbs": _READ},
]
_DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
CLUSTER_ROLES: dict[str, list[dict[str, Any]]] = {
    "cluster-admin": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "admin": [*_EDIT, {"apiGroups": [GROUP], "resources": ["rolebindings", "roles"], "verbs": [*_READ, *_WRITE]}],
    "edit": _EDIT,
    "view": _VIEW,
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _PUBLIC, "verbs": ["get"]}],
    "system:basic-user": [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ],
}
"""The roles of a new cluster."""
CLUSTER_ROLE_GROUPS: dict[str, list[str]] = {
    "cluster-admin": ["system:masters"],
    "system:discovery": ["system:authenticated"],
    "system:public-info-viewer": ["system:authenticated", "system:unauthenticated"],
    "system:basic-user": ["system:authenticated"],
}
"""To whom they are bound."""
