"""What the access policies of EKS allow (*Review access policy permissions* in EKS's documentation).

EKS evaluates them beside RBAC: they are no roles of the cluster, so a right from one cannot be granted to others.
Of the resources, those that the embedded API serves are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from muster.options.hyperpod.local.kubernetes.rights.policy_rules import AccessRule
from muster.options.hyperpod.local.kubernetes.rights.users import Attributes, User

PREFIX = "cluster-access-policy/"
CLUSTER_ADMIN = "AmazonEKSClusterAdminPolicy"

_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_RBAC = ("rbac.authorization.k8s.io",)
_CORE = ("",)
_VIEW = (AccessRule(_READ, _CORE, ("pods", "serviceaccounts")),)
_EDIT = (*_VIEW, AccessRule(_WRITE, _CORE, ("pods", "serviceaccounts")))
POLICIES: dict[str, tuple[AccessRule, ...]] = {
    CLUSTER_ADMIN: (AccessRule(("*",), ("*",), ("*",)), AccessRule(("*",), paths=("*",))),
    "AmazonEKSAdminPolicy": (
        *_EDIT,
        AccessRule((*_WRITE, *_READ), _RBAC, ("rolebindings", "roles")),
    ),
    "AmazonEKSEditPolicy": _EDIT,
    "AmazonEKSViewPolicy": _VIEW,
    "AmazonEKSAdminViewPolicy": (AccessRule(_READ, ("*",), ("*",)),),
}
"""Custom resources are in none of the policies but those of the cluster's administrators and their readers."""


def policy_allows(user: User, asked: Attributes) -> bool:
    """Whether an access policy of the user gives the right to a request."""
    return any(rule.allows(asked) for rule in _rules(user, asked.namespace))


def _rules(user: User, namespace: str) -> Iterator[AccessRule]:
    for policy in user.policies:
        inside = policy.namespaces is None or any(
            namespace and fnmatchcase(namespace, pattern) for pattern in policy.namespaces
        )
        if inside:
            yield from POLICIES.get(policy.name, ())
