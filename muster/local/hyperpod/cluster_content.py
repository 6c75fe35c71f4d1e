"""What is in a new cluster: namespaces, queues, priorities, service accounts."""

from __future__ import annotations

from typing import Any

from muster.local.hyperpod.cluster_settings import ClusterSettings
from muster.local.hyperpod.instance_types import capacity_of
from muster.local.hyperpod.node_documents import allocatable
from muster.local.hyperpod.quantities import quantity
from muster.local.kubernetes.kinds.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
)
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource
from muster.local.kubernetes.objects.store import ObjectStore

SYSTEM_NAMESPACES = ("default", "kube-system", "aws-hyperpod", "kueue-system")
PRIORITIES = {"inference": 100, "training": 80, "experiments": 50, "idle": 0}
"""The priority classes of a cluster's policy, with their weights: `training-priority` and so on."""
_FLAVOR = "default-flavor"
_UNCOUNTED = frozenset({"pods", "ephemeral-storage"})


def local_queue(namespace: str) -> str:
    """The local queue of a team's namespace, as HyperPod's task governance names it."""
    return f"{namespace}-localqueue"


def cluster_queue(namespace: str) -> str:
    """The cluster queue behind it."""
    return f"{namespace}-clusterqueue"


def fill(store: ObjectStore, settings: ClusterSettings) -> None:
    """Create all of it. Where something is there already, it stays."""
    for namespace in (*SYSTEM_NAMESPACES, *settings.namespaces):
        _create(store, NAMESPACES, {"metadata": {"name": namespace}})
    for name, value in PRIORITIES.items():
        class_name = f"{name}-priority"
        _create(store, WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": class_name}, "value": value})
        _create(store, PRIORITY_CLASSES, {"metadata": {"name": class_name}, "value": value})
    _create(store, RESOURCE_FLAVORS, {"metadata": {"name": _FLAVOR}, "spec": {}})
    for namespace in settings.namespaces:
        _create(store, CLUSTER_QUEUES, {"metadata": {"name": cluster_queue(namespace)}, "spec": _quota(settings)})
        spec = {"clusterQueue": cluster_queue(namespace)}
        _create(store, LOCAL_QUEUES, {"metadata": {"name": local_queue(namespace)}, "spec": spec}, namespace)


def _quota(settings: ClusterSettings) -> dict[str, Any]:
    """The resources of so many nodes; a lower priority gives way."""
    count = settings.nodes if settings.quota_nodes is None else settings.quota_nodes
    each = allocatable(capacity_of(settings.node_type))
    resources = [
        {"name": name, "nominalQuota": _times(name, value, count)}
        for name, value in each.items()
        if name not in _UNCOUNTED
    ]
    return {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"},
        "resourceGroups": [
            {
                "coveredResources": [item["name"] for item in resources],
                "flavors": [{"name": _FLAVOR, "resources": resources}],
            }
        ],
    }


def _times(name: str, value: str, count: int) -> str:
    total = quantity(value) * count
    if name == "cpu":
        return f"{int(total * 1000)}m"
    return f"{int(total / 1024**2)}Mi" if name == "memory" else str(int(total))


def _create(store: ObjectStore, resource: Resource, document: dict[str, Any], namespace: str = "") -> None:
    if store.find(resource, document["metadata"]["name"], namespace) is None:
        store.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, **document}, namespace)
