"""A node of the cluster: what HyperPod says of an instance, and what pods may use of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from muster.contract.aws.instance_types import EFA, accelerator_resource, cluster_instance

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOSTNAME = "kubernetes.io/hostname"
_LABEL = "sagemaker.amazonaws.com"
_PER_LAYER = 4  # nodes that share the lowest layer of the network
_PODS = 110
_GIB = 1024**3


class Health(StrEnum):
    """The label that HyperPod gives to a node."""

    SCHEDULABLE = "Schedulable"
    PENDING_REPLACEMENT = "UnschedulablePendingReplacement"
    PENDING_REBOOT = "UnschedulablePendingReboot"


def new_instance_id() -> str:
    """The id of a new instance."""
    return f"i-{secrets.token_hex(8)}0"


def name_of(instance: str) -> str:
    """The node of an instance."""
    return f"hyperpod-{instance}"


def instance_of(node_name: str) -> str:
    """The instance of a node."""
    return node_name.removeprefix("hyperpod-")


@dataclass(frozen=True)
class Node:
    """A node as it is now. `number` decides where in the network it lies."""

    instance: str
    number: int
    type: str
    group: str
    region: str
    health: Health = Health.SCHEDULABLE
    is_ready: bool = True
    """Whether its kubelet reports."""
    deep_check: str = "Passed"

    @property
    def name(self) -> str:
        """As pods name it."""
        return name_of(self.instance)

    @property
    def is_usable(self) -> bool:
        """Whether pods may be put on the node and may stay there."""
        return self.is_ready and self.health is Health.SCHEDULABLE

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """By which pods choose nodes."""
        return {
            HOSTNAME: self.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            INSTANCE_TYPE: self.type,
            "beta.kubernetes.io/instance-type": self.type,
            "topology.kubernetes.io/region": self.region,
            "topology.kubernetes.io/zone": f"{self.region}a",
            "topology.k8s.aws/network-node-layer-1": "nn-0000000000000001",
            "topology.k8s.aws/network-node-layer-2": f"nn-{self.number // (_PER_LAYER * _PER_LAYER):016x}",
            "topology.k8s.aws/network-node-layer-3": f"nn-{self.number // _PER_LAYER:016x}",
            f"{_LABEL}/compute-type": "HyperPod",
            f"{_LABEL}/instance-group-name": self.group,
            f"{_LABEL}/node-health-status": self.health.value,
            f"{_LABEL}/deep-health-check-status": self.deep_check,
        }

    @cached_property
    def allocatable(self) -> Mapping[str, Fraction]:
        """What pods may use."""
        return allocatable(self.type)


def allocatable(instance_type: str) -> dict[str, Fraction]:
    """What pods may use of an instance: without what the node and its daemons need, as AWS's command line counts it.

    Raises:
        KeyError: the type is not known.
    """
    found = cluster_instance(instance_type)
    if found is None:
        raise KeyError(instance_type)
    cores = (Fraction(3, 10), Fraction(15, 100), Fraction(1, 10), Fraction(1, 10))
    reserved = Fraction(1, 10) + sum(cores[core] if core < 4 else Fraction(6, 100) for core in range(found.vcpu))
    memory = Fraction(found.memory_gib)
    kept, left = Fraction(1, 2), memory
    for size, share in ((4, 30), (4, 25), (8, 20), (112, 17), (None, 7)):
        part = left if size is None else min(Fraction(size), left)
        kept += part * share / 100
        left -= part
    devices = {accelerator_resource(instance_type): found.accelerators, EFA: found.efa}
    return {
        "cpu": Fraction(int((found.vcpu - reserved) * 1000), 1000),
        "memory": Fraction(int((memory - kept) * 1024) * 1024**2),
        "pods": Fraction(_PODS),
        "ephemeral-storage": Fraction(500 * _GIB),
        **{name: Fraction(count) for name, count in devices.items() if count},
    }
