"""Who makes a request, and what the request asks for."""

from __future__ import annotations

from dataclasses import dataclass

from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, StatusError

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True)
class AccessPolicy:
    """An access policy of EKS that is associated with a user's access entry."""

    name: str
    """AmazonEKSClusterAdminPolicy, AmazonEKSAdminPolicy..."""
    namespaces: tuple[str, ...] | None = None
    """Names, or patterns with `*`; None for the whole cluster."""


@dataclass(frozen=True)
class User:
    """Who makes a request."""

    name: str
    groups: tuple[str, ...] = ()
    policies: tuple[AccessPolicy, ...] = ()
    principal: str = ""
    """The IAM role or user behind it, without account: for counts of calls."""


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


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


def refusal(user: User, asked: Attributes) -> StatusError:
    """403 in Kubernetes's words."""
    if asked.path:
        message = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
        return StatusError(403, "Forbidden", message)
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    named = f' "{asked.name}"' if asked.name else ""
    place = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    message = (
        f'{qualified}{named} is forbidden: User "{user.name}" cannot {asked.verb} resource "{asked.full_resource}" '
        f'in API group "{asked.group}" {place}'
    )
    details: Document = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return StatusError(403, "Forbidden", message, {key: value for key, value in details.items() if value})
