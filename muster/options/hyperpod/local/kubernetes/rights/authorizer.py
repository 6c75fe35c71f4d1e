"""Whether a user may do something: access policies of EKS and RBAC, read anew for each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.options.hyperpod.local.kubernetes.kinds.roles import GROUP as RBAC
from muster.options.hyperpod.local.kubernetes.kinds.served_resources import ROLE_BINDINGS, ROLES
from muster.options.hyperpod.local.kubernetes.objects.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, bad_request, forbidden
from muster.options.hyperpod.local.kubernetes.rights.access_policies import policy_allows
from muster.options.hyperpod.local.kubernetes.rights.policy_rules import AccessRule, rules_of, uncovered
from muster.options.hyperpod.local.kubernetes.rights.users import (
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Attributes,
    User,
)

_PUBLIC = AccessRule(("get",), paths=("/healthz", "/livez", "/readyz", "/version", "/version/"))
_DISCOVERY = AccessRule(("get",), paths=("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"))
_REVIEWS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
_OF_GROUPS: dict[str, tuple[AccessRule, ...]] = {
    AUTHENTICATED: (_PUBLIC, _DISCOVERY, AccessRule(("create",), ("authorization.k8s.io",), _REVIEWS)),
    UNAUTHENTICATED: (_PUBLIC,),
}
"""What a new cluster's own roles give (system:discovery, system:basic-user, system:public-info-viewer)."""


class Authorizer:
    """The rights of a cluster's users."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def allows(self, user: User, asked: Attributes) -> bool:
        """Whether the user may do what is asked."""
        if MASTERS in user.groups or policy_allows(user, asked):
            return True
        return any(rule.allows(asked) for rule in self.rules(user, asked.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[AccessRule]:
        """The rules of RBAC that the user has in a namespace, those of the whole cluster among them."""
        for group in user.groups:
            yield from _OF_GROUPS.get(group, ())
        if namespace:
            for binding in self._store.list(ROLE_BINDINGS, namespace).items:
                if any(_is_subject(subject, user) for subject in binding.get("subjects") or []):
                    role = self._store.find(ROLES, str(binding["roleRef"]["name"]), namespace)
                    yield from rules_of(role or {})

    def check_grant(self, user: User, resource: Resource, document: Document, namespace: str) -> None:
        """Refuse a role or binding that gives rights which the user does not have.

        Raises:
            StatusError: 403.
        """
        if MASTERS in user.groups or resource not in (ROLES, ROLE_BINDINGS):
            return
        name, verb = str(document["metadata"].get("name", "")), "escalate"
        if resource == ROLE_BINDINGS:
            name, verb = str((document.get("roleRef") or {}).get("name", "")), "bind"
        if self.allows(user, Attributes(verb, RBAC, ROLES.plural, namespace=namespace, name=name)):
            return
        role = document if resource == ROLES else self._store.get(ROLES, name, namespace)
        wanted: Sequence[AccessRule] = rules_of(role)
        # Access policies of EKS give the user rights, and no rules that could be passed on.
        missing = uncovered(list(self.rules(user, namespace)), wanted)
        if missing:
            groups = ", ".join(f'"{group}"' for group in user.groups)
            listed = "\n".join(map(str, missing))
            why = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
                f"{listed}"
            )
            raise forbidden(resource, str(document["metadata"].get("name", "")), why)


def _is_subject(subject: Document, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    return bool(kind == "User" and name == user.name) or (kind == "Group" and name in user.groups)


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
