"""A node of the cluster: what HyperPod says of an instance, and what pods may use of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from muster.contract.aws.instance_types import EFA, accelerator_resource, cluster_instance
from muster.options.hyperpod.contract.job_document import HEALTH_LABEL, TYPE_LABEL

HOSTNAME = "kubernetes.io/hostname"
_LABEL = "sagemaker.amazonaws.com"
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
    """A node as it is now."""

    instance: str
    type: str
    group: str
    region: str
    health: Health = Health.SCHEDULABLE
    is_ready: bool = True
    """Whether its kubelet reports."""

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
            TYPE_LABEL: self.type,
            "beta.kubernetes.io/instance-type": self.type,
            "topology.kubernetes.io/region": self.region,
            "topology.kubernetes.io/zone": f"{self.region}a",
            f"{_LABEL}/compute-type": "HyperPod",
            f"{_LABEL}/instance-group-name": self.group,
            f"{_LABEL}/node-health-status": self.health.value,
            HEALTH_LABEL: "Passed" if self.health is Health.SCHEDULABLE else "Failed",
        }


def allocatable(instance_type: str) -> dict[str, Fraction]:
    """What pods may use of an instance: without what the node and its daemons need, as AWS's command line counts it.

    Raises:
        KeyError: the type is not known.
    """
    found = cluster_instance(instance_type)
    if found is None:
        raise KeyError(instance_type)
    devices = {accelerator_resource(instance_type): found.accelerators, EFA: found.efa}
    return {
        "cpu": Fraction(round(found.allocatable_vcpu * 1000), 1000),
        "memory": Fraction(int(found.allocatable_memory_gib * 1024) * 1024**2),
        "pods": Fraction(_PODS),
        "ephemeral-storage": Fraction(500 * _GIB),
        **{name: Fraction(count) for name, count in devices.items() if count},
    }
