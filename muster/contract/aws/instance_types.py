"""The instance types that this release knows, from one table: `instance_types.csv`.

It has SageMaker's types for training (a test compares them with the pinned botocore), those of HyperPod's clusters as
AWS's SDK for HyperPod describes them, and what is known of each. To read SageMaker's own model takes longer than all
else that `muster plan` does. AWS adds types at any time, so that a type is not here is no error.
"""

from __future__ import annotations

import math
import pkgutil
from dataclasses import dataclass

NVIDIA = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neurondevice"
EFA = "vpc.amazonaws.com/efa"


@dataclass(frozen=True)
class ClusterInstance:
    """What an instance has for the pods on it."""

    vcpu: int
    memory_gib: int
    accelerators: int
    efa: int
    """EFA interfaces that HyperPod's Helm chart offers to pods."""

    @property
    def allocatable_vcpu(self) -> float:
        """Processors that are left for pods: a part of each is kept, less of every further one."""
        parts = (min(self.vcpu, 1) * 0.3, min(max(self.vcpu - 1, 0), 1) * 0.15, min(max(self.vcpu - 2, 0), 2) * 0.1)
        return self.vcpu - 0.1 - sum(parts) - max(self.vcpu - 4, 0) * 0.06

    @property
    def allocatable_memory_gib(self) -> float:
        """GiB that are left for pods: a part of the memory is kept, less of every further GiB."""
        kept, left = 0.5, float(self.memory_gib)
        for size, share in ((4, 0.3), (4, 0.25), (8, 0.2), (112, 0.17)):
            part = min(size, left)
            kept, left = kept + part * share, left - part
        return self.memory_gib - kept - left * 0.07

    @property
    def free_vcpu(self) -> int:
        """Whole processors for pods."""
        return math.floor(self.allocatable_vcpu)

    @property
    def free_memory_gib(self) -> int:
        """Whole GiB for pods."""
        return math.floor(self.allocatable_memory_gib)


@dataclass(frozen=True)
class Gpus:
    """The GPUs of an instance."""

    name: str
    count: int
    memory_gib: int
    """Of each."""


def _rows() -> list[dict[str, str]]:
    head, *lines = (pkgutil.get_data(__name__, "instance_types.csv") or b"").decode().splitlines()
    return [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]


_ROWS = {row["instance_type"]: row for row in _rows()}

TRAINING_INSTANCE_TYPES = frozenset(name for name, row in _ROWS.items() if row["training"])
"""The members of TrainingInstanceType, as CreateTrainingJob names them."""

CLUSTER_INSTANCE_TYPES = tuple(name for name, row in _ROWS.items() if row["cluster"])

GPU_TYPES = {
    name: Gpus(row["gpu"], int(row["accelerators"]), int(row["gpu_memory_gib"]))
    for name, row in _ROWS.items()
    if row["gpu"] and row["training"]
}
"""By instance type, as AWS describes the families of EC2 instances."""

USD_PER_HOUR = {name: float(row["usd_per_hour"]) for name, row in _ROWS.items() if row["usd_per_hour"]}
"""On-demand prices of SageMaker training; prices.py says where and when they held."""

NETWORK_GBPS = {name: float(row["network_gbps"]) for name, row in _ROWS.items() if row["network_gbps"]}
"""What a type's first network card always carries in each direction, as DescribeInstanceTypes says (`NetworkCards`)."""

# EC2, "SSD instance store volumes".
_INSTANCE_STORE = frozenset(name.split(".")[1] for name, row in _ROWS.items() if row["own_disks"])


def cluster_instance(instance_type: str) -> ClusterInstance | None:
    """What an instance of a type such as `ml.p5.48xlarge` has; None where no cluster is known to have the type."""
    row = _ROWS.get(instance_type, {"cluster": ""})
    if not row["cluster"]:
        return None
    return ClusterInstance(*(int(row[name]) for name in ("vcpu", "memory_gib", "accelerators", "efa")))


def accelerator_resource(instance_type: str) -> str:
    """The name of a pod's accelerators: Neuron devices of Trainium and Inferentia, GPUs of all others."""
    return NEURON if instance_type.split(".")[1].startswith(("trn", "inf")) else NVIDIA


def has_own_disks(instance_type: str) -> bool:
    """Whether the type has local disks. Its hardware encrypts them, and SageMaker refuses a key for them."""
    return instance_type.split(".")[1] in _INSTANCE_STORE
