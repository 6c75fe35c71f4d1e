"""The resources that the embedded API serves: those that Muster and AWS's command line for jobs ask for."""

from __future__ import annotations

from dataclasses import dataclass

from muster.options.hyperpod.contract.object_identity import GROUP, KIND, PLURAL, RBAC, VERSION


@dataclass(frozen=True)
class Resource:
    """A resource of the API."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in messages: `pods`, `hyperpodpytorchjobs.sagemaker.amazonaws.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


JOBS = Resource(GROUP, VERSION, PLURAL, KIND)
"""The one of a CustomResourceDefinition."""
PODS = Resource("", "v1", "pods", "Pod")
"""The operator makes them: the API answers reads alone."""
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
"""Named in errors alone."""
RESOURCES = (JOBS, PODS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
