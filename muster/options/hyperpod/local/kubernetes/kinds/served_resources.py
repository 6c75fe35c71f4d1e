"""The resources that the embedded API serves: those that Muster and AWS's command line for jobs ask for."""

from __future__ import annotations

from muster.options.hyperpod.contract.object_identity import GROUP, KIND, PLURAL, VERSION
from muster.options.hyperpod.local.kubernetes.kinds.pods import JobRules, PodRules
from muster.options.hyperpod.local.kubernetes.kinds.roles import GROUP as RBAC
from muster.options.hyperpod.local.kubernetes.kinds.roles import BindingRules, RoleRules
from muster.options.hyperpod.local.kubernetes.objects.resource import Resource

JOBS = Resource(GROUP, VERSION, PLURAL, KIND, custom=True, rules=JobRules())
PODS = Resource("", "v1", "pods", "Pod", read_only=True, rules=PodRules())
"""The operator makes them."""
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource(RBAC, "v1", "roles", "Role", rules=RoleRules())
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", rules=BindingRules())
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
"""Named in errors alone."""

RESOURCES = (JOBS, PODS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
