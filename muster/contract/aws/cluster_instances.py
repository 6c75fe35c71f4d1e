"""What an instance of a HyperPod cluster has for the pods on it, of the types that AWS's SDK for HyperPod knows.

AWS adds types at any time, so that a type is not here is no error: a spec then says itself what a pod needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NVIDIA = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neurondevice"
EFA = "vpc.amazonaws.com/efa"

# vCPUs, memory in GiB, accelerators, EFA interfaces that HyperPod's Helm chart offers to pods: none of *6i.
_SIZES = {
    "c5": {
        "large": (2, 4, 0, 0),
        "xlarge": (4, 8, 0, 0),
        "2xlarge": (8, 16, 0, 0),
        "4xlarge": (16, 32, 0, 0),
        "9xlarge": (36, 72, 0, 0),
        "12xlarge": (48, 96, 0, 0),
        "18xlarge": (72, 144, 0, 0),
        "24xlarge": (96, 192, 0, 0),
    },
    "c5n": {
        "large": (2, 5, 0, 0),
        "2xlarge": (8, 21, 0, 0),
        "4xlarge": (16, 42, 0, 0),
        "9xlarge": (36, 96, 0, 1),
        "18xlarge": (72, 192, 0, 1),
    },
    "c6i": {
        "large": (2, 4, 0, 0),
        "xlarge": (4, 8, 0, 0),
        "2xlarge": (8, 16, 0, 0),
        "4xlarge": (16, 32, 0, 0),
        "8xlarge": (32, 64, 0, 0),
        "12xlarge": (48, 96, 0, 0),
        "16xlarge": (64, 128, 0, 0),
        "24xlarge": (96, 192, 0, 0),
        "32xlarge": (128, 256, 0, 0),
    },
    "g5": {
        "xlarge": (4, 16, 1, 0),
        "2xlarge": (8, 32, 1, 0),
        "4xlarge": (16, 64, 1, 0),
        "8xlarge": (32, 128, 1, 1),
        "12xlarge": (48, 192, 4, 1),
        "16xlarge": (64, 256, 1, 1),
        "24xlarge": (96, 384, 4, 1),
        "48xlarge": (192, 768, 8, 1),
    },
    "g6": {
        "xlarge": (4, 16, 1, 0),
        "2xlarge": (8, 32, 1, 0),
        "4xlarge": (16, 64, 1, 0),
        "8xlarge": (32, 128, 1, 1),
        "12xlarge": (48, 192, 4, 1),
        "16xlarge": (64, 256, 1, 1),
        "24xlarge": (96, 384, 4, 1),
        "48xlarge": (192, 768, 8, 1),
    },
    "g6e": {
        "xlarge": (4, 32, 1, 0),
        "2xlarge": (8, 64, 1, 0),
        "4xlarge": (16, 128, 1, 0),
        "8xlarge": (32, 256, 1, 1),
        "12xlarge": (48, 384, 4, 1),
        "16xlarge": (64, 512, 1, 1),
        "24xlarge": (96, 768, 4, 2),
        "48xlarge": (192, 1536, 8, 4),
    },
    "g7e": {
        "2xlarge": (8, 64, 1, 0),
        "4xlarge": (16, 128, 1, 0),
        "8xlarge": (32, 256, 1, 1),
        "12xlarge": (48, 512, 2, 1),
        "24xlarge": (96, 1024, 4, 2),
        "48xlarge": (192, 2048, 8, 4),
    },
    "gr6": {
        "4xlarge": (16, 128, 1, 0),
        "8xlarge": (32, 256, 1, 1),
    },
    "i3en": {
        "large": (2, 16, 0, 0),
        "xlarge": (4, 32, 0, 0),
        "2xlarge": (8, 64, 0, 0),
        "3xlarge": (12, 96, 0, 0),
        "6xlarge": (24, 192, 0, 0),
        "12xlarge": (48, 384, 0, 1),
        "24xlarge": (96, 768, 0, 1),
    },
    "m5": {
        "large": (2, 8, 0, 0),
        "xlarge": (4, 16, 0, 0),
        "2xlarge": (8, 32, 0, 0),
        "4xlarge": (16, 64, 0, 0),
        "8xlarge": (32, 128, 0, 0),
        "12xlarge": (48, 192, 0, 0),
        "16xlarge": (64, 256, 0, 0),
        "24xlarge": (96, 384, 0, 0),
    },
    "m6i": {
        "large": (2, 8, 0, 0),
        "xlarge": (4, 16, 0, 0),
        "2xlarge": (8, 32, 0, 0),
        "4xlarge": (16, 64, 0, 0),
        "8xlarge": (32, 128, 0, 0),
        "12xlarge": (48, 192, 0, 0),
        "16xlarge": (64, 256, 0, 0),
        "24xlarge": (96, 384, 0, 0),
        "32xlarge": (128, 512, 0, 0),
    },
    "m7i": {
        "large": (2, 8, 0, 0),
        "xlarge": (4, 16, 0, 0),
        "2xlarge": (8, 32, 0, 0),
        "4xlarge": (16, 64, 0, 0),
        "8xlarge": (32, 128, 0, 0),
        "12xlarge": (48, 192, 0, 0),
        "16xlarge": (64, 256, 0, 0),
        "24xlarge": (96, 384, 0, 0),
        "48xlarge": (192, 768, 0, 1),
    },
    "p4d": {
        "24xlarge": (96, 1152, 8, 4),
    },
    "p4de": {
        "24xlarge": (96, 1152, 8, 4),
    },
    "p5": {
        "4xlarge": (16, 256, 1, 1),
        "48xlarge": (192, 2048, 8, 32),
    },
    "p5e": {
        "48xlarge": (192, 2048, 8, 32),
    },
    "p5en": {
        "48xlarge": (192, 2048, 8, 16),
    },
    "p6-b200": {
        "48xlarge": (192, 2048, 8, 8),
    },
    "p6-b300": {
        "48xlarge": (192, 4096, 8, 16),
    },
    "p6e-gb200": {
        "36xlarge": (144, 960, 4, 0),
    },
    "r6i": {
        "large": (2, 16, 0, 0),
        "xlarge": (4, 32, 0, 0),
        "2xlarge": (8, 64, 0, 0),
        "4xlarge": (16, 128, 0, 0),
        "8xlarge": (32, 256, 0, 0),
        "12xlarge": (48, 384, 0, 0),
        "16xlarge": (64, 512, 0, 0),
        "24xlarge": (96, 768, 0, 0),
        "32xlarge": (128, 1024, 0, 0),
    },
    "r7i": {
        "large": (2, 16, 0, 0),
        "xlarge": (4, 32, 0, 0),
        "2xlarge": (8, 64, 0, 0),
        "4xlarge": (16, 128, 0, 0),
        "8xlarge": (32, 256, 0, 0),
        "12xlarge": (48, 384, 0, 0),
        "16xlarge": (64, 512, 0, 0),
        "24xlarge": (96, 768, 0, 0),
        "48xlarge": (192, 1536, 0, 1),
    },
    "t3": {
        "medium": (2, 4, 0, 0),
        "large": (2, 8, 0, 0),
        "xlarge": (4, 16, 0, 0),
        "2xlarge": (8, 32, 0, 0),
    },
    "trn1": {
        "32xlarge": (128, 512, 16, 8),
    },
    "trn1n": {
        "32xlarge": (128, 512, 16, 16),
    },
    "trn2": {
        "3xlarge": (12, 128, 1, 1),
        "48xlarge": (192, 2048, 16, 16),
    },
}

CLUSTER_INSTANCE_TYPES = tuple(f"ml.{family}.{size}" for family, sizes in _SIZES.items() for size in sizes)


@dataclass(frozen=True)
class ClusterInstance:
    """An instance of a type: its vCPUs, memory in GiB, accelerators and EFA interfaces."""

    vcpu: int
    memory_gib: int
    accelerators: int
    efa: int

    @property
    def free_vcpu(self) -> int:
        """Whole processors that are left for pods: a part of each is kept, less of every further one."""
        parts = (min(self.vcpu, 1) * 0.3, min(max(self.vcpu - 1, 0), 1) * 0.15, min(max(self.vcpu - 2, 0), 2) * 0.1)
        return math.floor(self.vcpu - 0.1 - sum(parts) - max(self.vcpu - 4, 0) * 0.06)

    @property
    def free_memory_gib(self) -> int:
        """Whole GiB that are left for pods: a part of the memory is kept, less of every further GiB."""
        kept, left = 0.5, float(self.memory_gib)
        for size, share in ((4, 0.3), (4, 0.25), (8, 0.2), (112, 0.17)):
            part = min(size, left)
            kept, left = kept + part * share, left - part
        return math.floor(self.memory_gib - kept - left * 0.07)


def cluster_instance(instance_type: str) -> ClusterInstance | None:
    """What an instance of a type such as `ml.p5.48xlarge` has; None where it is not known."""
    _, family, size = instance_type.split(".")
    found = _SIZES.get(family, {}).get(size)
    return None if found is None else ClusterInstance(*found)


def accelerator_resource(instance_type: str) -> str:
    """The name of a pod's accelerators: Neuron devices of Trainium and Inferentia, GPUs of all others."""
    return NEURON if instance_type.split(".")[1].startswith(("trn", "inf")) else NVIDIA
