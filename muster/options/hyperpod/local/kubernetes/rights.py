"""Who may do what: users, the access policies of EKS, and RBAC, read anew for each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from muster.options.hyperpod.contract.object_identity import RBAC
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.served_resources import ROLE_BINDINGS, ROLES, Resource
from muster.options.hyperpod.local.kubernetes.status_errors import Document, StatusError, bad_request, forbidden

AUTHENTICATED = "system:authenticated"
Rule = Mapping[str, Any]
"""A `PolicyRule`, as in a role."""


_REVIEW: Rule = {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"]}
"""What a new cluster's own role system:basic-user gives to all who are authenticated."""
_PUBLIC_PATH = "/version"
"""What system:public-info-viewer lets everyone read, as far as it is served; system:discovery adds all other paths."""


@dataclass(frozen=True)
class AccessPolicy:
    """An access policy of EKS that is associated with a user's access entry."""

    rules: Sequence[Rule]
    namespaces: Sequence[str] | None = None
    """Names, or patterns with `*`; None for the whole cluster."""

    def allows(self, asked: Attributes) -> bool:
        """Whether the policy gives the right to a request."""
        inside = self.namespaces is None or any(
            asked.namespace and fnmatchcase(asked.namespace, pattern) for pattern in self.namespaces
        )
        return inside and any(_allows(rule, asked) for rule in self.rules)


@dataclass(frozen=True)
class User:
    """Who makes a request."""

    name: str
    groups: tuple[str, ...] = ()
    policies: tuple[AccessPolicy, ...] = ()
    principal: str = ""
    """The IAM role or user behind it, without account: for counts of calls."""


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True)
class Attributes:
    """What a request asks for, as an authorizer sees it."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Of a request for no resource; then all others but the verb are empty."""
    version: str = ""

    @property
    def full_resource(self) -> str:
        """`pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Authorizer:
    """The rights of a cluster's users."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether the user may do what is asked."""
        if asked.path:
            return asked.verb == "get" and (asked.path == _PUBLIC_PATH or AUTHENTICATED in user.groups)
        if any(policy.allows(asked) for policy in user.policies):
            return True
        return any(_allows(rule, asked) for rule in self._rules(user, asked.namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Rule]:
        """The rules of RBAC that the user has in a namespace, those of the whole cluster among them."""
        if AUTHENTICATED in user.groups:
            yield _REVIEW
        if namespace:
            for binding in self._store.list(ROLE_BINDINGS, namespace):
                if any(subject["name"] in user.groups for subject in binding.get("subjects", ())):
                    role = self._store.find(ROLES, binding["roleRef"]["name"], namespace)
                    yield from (role or {}).get("rules", ())

    def check_grant(self, user: User, resource: Resource, document: Document, namespace: str) -> None:
        """Refuse a role or binding of a user who may not `escalate` or `bind`. Kubernetes also takes it of one who has
        all the rights in it.

        Raises:
            StatusError: 403.
        """
        name, verb = str(document["metadata"].get("name", "")), {ROLES: "escalate", ROLE_BINDINGS: "bind"}.get(resource)
        granted = document.get("roleRef", {}).get("name", "") if resource == ROLE_BINDINGS else name
        if verb and not self.allows(user, Attributes(verb, RBAC, ROLES.plural, namespace=namespace, name=granted)):
            why = f'user "{user.name}" is attempting to grant RBAC permissions, and may not {verb} the role "{granted}"'
            raise forbidden(resource, name, why)


def _allows(rule: Rule, asked: Attributes) -> bool:
    """Whether a rule gives the right to a request."""
    names = rule.get("resourceNames")
    return (
        _has(rule["verbs"], asked.verb)
        and _has(rule.get("apiGroups", ()), asked.group)
        and _has(rule.get("resources", ()), asked.full_resource)
        and (not names or asked.name in names)
    )


def _has(values: Sequence[str], wanted: str) -> bool:
    return "*" in values or wanted in values


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


def refusal(user: User, asked: Attributes) -> StatusError:
    """403 in Kubernetes's words."""
    if asked.path:
        message = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
        return StatusError(403, "Forbidden", message)
    resource = Resource(asked.group, asked.version, asked.resource, "")
    place = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'resource "{asked.full_resource}" in API group "{asked.group}" {place}'
    return forbidden(resource, asked.name, f'User "{user.name}" cannot {asked.verb} {what}')
