"""What nodes of an instance type have. From EC2's and SageMaker's lists of instance types."""

from __future__ import annotations

from dataclasses import dataclass

GPU, NEURON, EFA = "nvidia.com/gpu", "aws.amazon.com/neurondevice", "vpc.amazonaws.com/efa"


@dataclass(frozen=True)
class InstanceType:
    """A node of this type: processors, memory, devices."""

    vcpu: int
    memory_gib: int
    gpu: int = 0
    neuron: int = 0
    efa: int = 0

    def capacity(self) -> dict[str, str]:
        """`status.capacity` of a node."""
        found = {"cpu": str(self.vcpu), "memory": f"{self.memory_gib}Gi", "pods": "110", "ephemeral-storage": "500Gi"}
        devices = {GPU: self.gpu, NEURON: self.neuron, EFA: self.efa}
        return {**found, **{name: str(count) for name, count in devices.items() if count}}


TYPES = {
    "ml.t3.medium": InstanceType(2, 4),
    "ml.t3.xlarge": InstanceType(4, 16),
    "ml.c5.large": InstanceType(2, 4),
    "ml.c5.xlarge": InstanceType(4, 8),
    "ml.c5.2xlarge": InstanceType(8, 16),
    "ml.c5.4xlarge": InstanceType(16, 32),
    "ml.c5n.18xlarge": InstanceType(72, 192, efa=1),
    "ml.m5.large": InstanceType(2, 8),
    "ml.m5.xlarge": InstanceType(4, 16),
    "ml.m5.2xlarge": InstanceType(8, 32),
    "ml.m5.4xlarge": InstanceType(16, 64),
    "ml.m5.12xlarge": InstanceType(48, 192),
    "ml.g5.xlarge": InstanceType(4, 16, gpu=1),
    "ml.g5.2xlarge": InstanceType(8, 32, gpu=1),
    "ml.g5.8xlarge": InstanceType(32, 128, gpu=1, efa=1),
    "ml.g5.12xlarge": InstanceType(48, 192, gpu=4, efa=1),
    "ml.g5.48xlarge": InstanceType(192, 768, gpu=8, efa=1),
    "ml.g6.12xlarge": InstanceType(48, 192, gpu=4, efa=1),
    "ml.g6e.48xlarge": InstanceType(192, 1536, gpu=8, efa=4),
    "ml.p4d.24xlarge": InstanceType(96, 1152, gpu=8, efa=4),
    "ml.p4de.24xlarge": InstanceType(96, 1152, gpu=8, efa=4),
    "ml.p5.48xlarge": InstanceType(192, 2048, gpu=8, efa=32),
    "ml.p5e.48xlarge": InstanceType(192, 2048, gpu=8, efa=32),
    "ml.p5en.48xlarge": InstanceType(192, 2048, gpu=8, efa=16),
    "ml.trn1.32xlarge": InstanceType(128, 512, neuron=16, efa=8),
    "ml.trn2.48xlarge": InstanceType(192, 2048, neuron=16, efa=16),
}
