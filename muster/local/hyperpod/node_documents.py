"""The nodes of the cluster as Kubernetes objects: what HyperPod says of an instance."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from muster.local.hyperpod.instance_types import capacity_of
from muster.local.hyperpod.quantities import quantity

HEALTH = "sagemaker.amazonaws.com/node-health-status"
DEEP_CHECK = "sagemaker.amazonaws.com/deep-health-check-status"
FAULT_TYPES = "sagemaker.amazonaws.com/fault-types"
FAULT_REASONS = "sagemaker.amazonaws.com/fault-reasons"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOSTNAME = "kubernetes.io/hostname"
SCHEDULABLE = "Schedulable"
PENDING_REPLACEMENT = "UnschedulablePendingReplacement"
PENDING_REBOOT = "UnschedulablePendingReboot"
PASSED, FAILED = "Passed", "Failed"
UNREACHABLE = "node.kubernetes.io/unreachable"
_TAINT = "sagemaker.amazonaws.com/node-health-status"
_PER_LAYER = 4  # nodes that share the lowest layer of the network


def new_instance_id() -> str:
    """The id of a new instance."""
    return f"i-{secrets.token_hex(8)}0"[:19]


def node(instance: str, number: int, node_type: str, group: str, region: str) -> dict[str, Any]:
    """A healthy node that has just joined. `number` decides where in the network it lies."""
    capacity = capacity_of(node_type)
    labels = {
        HOSTNAME: name_of(instance),
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        INSTANCE_TYPE: node_type,
        "beta.kubernetes.io/instance-type": node_type,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": f"{region}a",
        "topology.k8s.aws/network-node-layer-1": "nn-0000000000000001",
        "topology.k8s.aws/network-node-layer-2": f"nn-{number // (_PER_LAYER * _PER_LAYER):016x}",
        "topology.k8s.aws/network-node-layer-3": f"nn-{number // _PER_LAYER:016x}",
        "sagemaker.amazonaws.com/compute-type": "HyperPod",
        "sagemaker.amazonaws.com/instance-group-name": group,
        HEALTH: SCHEDULABLE,
        DEEP_CHECK: PASSED,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name_of(instance), "labels": labels},
        "spec": {"providerID": f"aws:///{region}a/sagemaker/cluster/{instance}"},
        "status": {"capacity": capacity, "allocatable": allocatable(capacity), "conditions": [ready("True")]},
    }


def name_of(instance: str) -> str:
    """The node of an instance."""
    return f"hyperpod-{instance}"


def instance_of(node_name: str) -> str:
    """The instance of a node."""
    return node_name.removeprefix("hyperpod-")


def ready(
    status: str, reason: str = "KubeletReady", message: str = "kubelet is posting ready status"
) -> dict[str, str]:
    """The condition Ready."""
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def is_ready(document: Mapping[str, Any]) -> bool:
    """Whether the node's kubelet reports."""
    conditions = document.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def health(document: Mapping[str, Any]) -> str:
    """The label that HyperPod gives to a node."""
    return str((document["metadata"].get("labels") or {}).get(HEALTH, ""))


def is_usable(document: Mapping[str, Any]) -> bool:
    """Whether pods may be put on the node and may stay there."""
    return is_ready(document) and health(document) == SCHEDULABLE


def unhealthy_taint(status: str) -> dict[str, str]:
    """The taint of a node that is not Schedulable."""
    return {"key": _TAINT, "value": status, "effect": "NoSchedule"}


def allocatable(capacity: Mapping[str, str]) -> dict[str, str]:
    """What pods may use: without what the node and its daemons need, as AWS's command line counts it."""
    cpu, memory = int(capacity["cpu"]), quantity(capacity["memory"]) / 1024**3
    reserved = Fraction(1, 10) + sum(
        (Fraction(3, 10), Fraction(15, 100), Fraction(1, 10), Fraction(1, 10))[core] if core < 4 else Fraction(6, 100)
        for core in range(cpu)
    )
    kept, left = Fraction(1, 2), memory
    for size, share in ((4, 30), (4, 25), (8, 20), (112, 17), (None, 7)):
        part = left if size is None else min(Fraction(size), left)
        kept += part * share / 100
        left -= part
    milli, mebi = int((cpu - reserved) * 1000), int((memory - kept) * 1024)
    return {**capacity, "cpu": f"{milli}m", "memory": f"{mebi}Mi"}
