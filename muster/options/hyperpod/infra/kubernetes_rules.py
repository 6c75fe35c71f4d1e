"""What functions may do in the namespaces of a cluster, as data: rules of a Role of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.options.hyperpod.contract.object_identity import GROUP, PLURAL


@dataclass(frozen=True)
class KubernetesRule:
    """`verbs` on a kind of objects."""

    group: str
    resource: str
    verbs: tuple[str, ...]

    @property
    def document(self) -> dict[str, list[str]]:
        """The rule as a Role has it."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


def cluster_jobs(*verbs: str) -> KubernetesRule:
    """On the jobs of replicas."""
    return KubernetesRule(GROUP, PLURAL, verbs)


def pods(*verbs: str) -> KubernetesRule:
    """On the pods of all jobs in the namespace: Kubernetes cannot name those of some."""
    return KubernetesRule("", "pods", verbs)


def service_accounts(*verbs: str) -> KubernetesRule:
    """On the service accounts of runs."""
    return KubernetesRule("", "serviceaccounts", verbs)


Rules = Sequence[KubernetesRule]
