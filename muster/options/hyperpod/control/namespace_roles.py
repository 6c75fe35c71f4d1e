"""What groups of functions may do in the namespaces of a cluster: Roles and RoleBindings, made for CloudFormation.

Every call may be repeated, and may find what an earlier one has made. The names of the objects end in a digest of what
they say, so what has a name already is right, unless a person has changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import MusterError
from muster.contract.training.clusters import ClusterName, DnsLabel, EksName
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.contract.object_identity import LABEL_STACK, RBAC
from muster.options.hyperpod.control.api import Json, KubernetesApi
from muster.options.hyperpod.control.cluster_errors import (
    ClusterConflictError,
    ClusterNotFoundError,
    ClusterRefusedError,
)

_API = f"/apis/{RBAC}/v1/namespaces"
_FORBIDDEN = 403
_PAUSE_SECONDS = 2.0


class NamespaceRole(BaseModel):
    """The role of one function: the group that its access entry gives it, and the rules of that group."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str = Field(alias="Name", max_length=200, pattern=r"^[a-z0-9][a-z0-9_-]*$")
    group: str = Field(alias="Group", min_length=1, max_length=200)
    rules: list[dict[str, list[str]]] = Field(alias="Rules")

    def documents(self, namespace: str, stack: str) -> Iterator[tuple[str, Json]]:
        """The objects of the role in a namespace, each with its kind as paths name it."""
        labels = {LABEL_STACK: stack, "app.kubernetes.io/managed-by": "muster"}
        metadata = {"name": self.name, "namespace": namespace, "labels": labels}
        version = f"{RBAC}/v1"
        yield "roles", {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": self.rules}
        yield (
            "rolebindings",
            {
                "apiVersion": version,
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": self.name},
                "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": self.group}],
            },
        )


class NamespaceRoles(BaseModel):
    """All roles of a stack on one cluster: the properties of the custom resource."""

    model_config = ConfigDict(frozen=True, strict=True)

    cluster: ClusterName = Field(alias="Cluster")
    eks_cluster: EksName = Field(alias="EksCluster")
    stack: str = Field(alias="Stack", min_length=1, max_length=63)
    namespaces: list[DnsLabel] = Field(alias="Namespaces", min_length=1)
    roles: list[NamespaceRole] = Field(alias="Roles", min_length=1)

    @property
    def places(self) -> Iterator[tuple[str, str, Json]]:
        """The path of each object's kind, its name, and the object."""
        for namespace in self.namespaces:
            for role in self.roles:
                for kind, document in role.documents(namespace, self.stack):
                    yield f"{_API}/{namespace}/{kind}", role.name, document


class NamespaceMissingError(MusterError):
    """A namespace of the settings does not exist in the cluster."""

    def __init__(self, cluster: str, namespace: str) -> None:
        super().__init__(
            f"The cluster {cluster} has no namespace {namespace}. Make it (kubectl create namespace {namespace}), or "
            f"remove it from hyperpod_clusters.{cluster}.namespaces in muster.toml."
        )


def make_roles(api: KubernetesApi, wanted: NamespaceRoles, budget: TimeBudget) -> None:
    """Make what is missing, and put right what a person has changed.

    Raises:
        NamespaceMissingError: a namespace does not exist.
        ClusterRefusedError: the cluster refuses an object, or this function's rights, until `budget` ends.
        ClusterGoneError: there is no such EKS cluster.
        ClusterUnavailableError: its API does not answer, or does not know this function, until `budget` ends.
    """
    for path, name, document in wanted.places:
        try:
            _patiently(partial(_make, api, path, name, document, budget), budget)
        except ClusterNotFoundError:
            raise NamespaceMissingError(wanted.cluster, path.split("/")[5]) from None


def remove_roles(api: KubernetesApi, unwanted: NamespaceRoles, budget: TimeBudget) -> list[str]:
    """Remove the roles; what the cluster refuses is left, and returned.

    What is left gives rights to no function: the access entries that name its groups are gone, or name others.

    Raises:
        ClusterGoneError: there is no such EKS cluster, and with it nothing to remove.
        ClusterUnavailableError: its API does not answer, or does not know this function, until `budget` ends.
    """
    left = []
    for path, name, _ in unwanted.places:
        try:
            api.delete(f"{path}/{name}", {}, budget)
        except ClusterNotFoundError:
            continue
        except ClusterRefusedError as error:
            left.append(f"{path}/{name}: {error.status} {error.reason}")
    return left


def _make(api: KubernetesApi, path: str, name: str, document: Json, budget: TimeBudget) -> None:
    try:
        api.create(path, document, budget)
    except ClusterConflictError:
        found = api.get(f"{path}/{name}", budget)
        if any(found.get(part) != document[part] for part in ("rules", "roleRef", "subjects") if part in document):
            with suppress(ClusterNotFoundError):
                api.delete(f"{path}/{name}", {}, budget)
            api.create(path, document, budget)


def _patiently(call: Callable[[], None], budget: TimeBudget) -> None:
    """Try again while the cluster refuses: a new access entry is effective after some seconds."""
    while True:
        try:
            return call()
        except ClusterRefusedError as error:
            if error.status != _FORBIDDEN or budget.is_spent:
                raise
        clock.sleep(min(_PAUSE_SECONDS, budget.remaining))
