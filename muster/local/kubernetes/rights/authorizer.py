"""Whether a user may do something: access policies of EKS and RBAC, read anew for each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.local.kubernetes.kinds.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from muster.local.kubernetes.kinds.roles import GROUP as RBAC
from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import Document, bad_request, forbidden
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.rights.access_policies import policy_allows
from muster.local.kubernetes.rights.policy_rules import Rule, rules_of, uncovered
from muster.local.kubernetes.rights.users import MASTERS, Attributes, User

_ROLES = (ROLES, CLUSTER_ROLES)
_BINDINGS = (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)


class Authorizer:
    """The rights of a cluster's users."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether the user may do what is asked."""
        if MASTERS in user.groups or policy_allows(user, asked):
            return True
        return any(rule.allows(asked) for rule in self.rules(user, asked.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Rule]:
        """The rules of RBAC that the user has in a namespace, those of the whole cluster among them."""
        for binding in self._store.list(CLUSTER_ROLE_BINDINGS).items:
            if _binds(binding, user, ""):
                yield from self._rules_of_reference(binding, "")
        if namespace:
            for binding in self._store.list(ROLE_BINDINGS, namespace).items:
                if _binds(binding, user, namespace):
                    yield from self._rules_of_reference(binding, namespace)

    def check_grant(self, user: User, resource: Resource, document: Document, namespace: str) -> None:
        """Refuse a role or binding that gives rights which the user does not have.

        Raises:
            StatusError: 403.
        """
        if MASTERS in user.groups:
            return
        name = str(document.get("metadata", {}).get("name", ""))
        if resource in _ROLES:
            escape = Attributes("escalate", RBAC, resource.plural, namespace=namespace, name=name)
            wanted: Sequence[Rule] = rules_of(document)
        elif resource in _BINDINGS:
            reference = document.get("roleRef") or {}
            target = CLUSTER_ROLES if reference.get("kind") == "ClusterRole" else ROLES
            escape = Attributes("bind", RBAC, target.plural, namespace=namespace, name=str(reference.get("name", "")))
            if self.allows(user, escape):
                return
            wanted = list(self._rules_of_reference(document, namespace, must_exist=True))
        else:
            return
        if self.allows(user, escape):
            return
        # Access policies of EKS give the user rights, and no rules that could be passed on.
        missing = uncovered(list(self.rules(user, namespace)), wanted)
        if missing:
            groups = ", ".join(f'"{group}"' for group in user.groups)
            listed = "\n".join(map(str, missing))
            why = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
                f"{listed}"
            )
            raise forbidden(resource, name, why)

    def _rules_of_reference(self, binding: Document, namespace: str, *, must_exist: bool = False) -> Iterator[Rule]:
        reference = binding.get("roleRef") or {}
        name = str(reference.get("name", ""))
        if reference.get("kind") == "ClusterRole":
            find, place = CLUSTER_ROLES, ""
        else:
            find, place = ROLES, namespace
        role = self._store.get(find, name, place) if must_exist else self._store.find(find, name, place)
        if role is not None:
            yield from rules_of(role)


def _binds(binding: Document, user: User, namespace: str) -> bool:
    return any(_is_subject(subject, user, namespace) for subject in binding.get("subjects") or [])


def _is_subject(subject: Document, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    place = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and user.name == f"system:serviceaccount:{place}:{name}"


def review(document: Document, user: User, authorizer: Authorizer) -> Document:
    """The answer to a SelfSubjectAccessReview: whether the caller may do something. It is not kept.

    Raises:
        StatusError: 400 where it asks for no right to a resource.
    """
    spec = document.get("spec")
    about = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(about, dict):
        message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise bad_request(message)
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    asked = Attributes(**{name: str(about.get(name) or "") for name in names})
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"creationTimestamp": None},
        "spec": spec,
        "status": {"allowed": authorizer.allows(user, asked)},
    }
