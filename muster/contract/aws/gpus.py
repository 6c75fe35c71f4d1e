"""The GPUs of the instance types of SageMaker training, as AWS describes the families of EC2 instances."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.aws.instance_types import TRAINING_INSTANCE_TYPES

_ONE = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_OF_G = {**dict.fromkeys(_ONE, 1), "12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
# Of a family: the GPU, its memory in GiB, and how many each size has.
_FAMILIES: dict[str, tuple[str, int, dict[str, int]]] = {
    "g4dn": ("T4", 16, {**dict.fromkeys(_ONE, 1), "12xlarge": 4}),
    "g5": ("A10G", 24, _OF_G),
    "g6": ("L4", 24, _OF_G),
    "g6e": ("L40S", 48, _OF_G),
    "p3": ("V100", 16, {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": ("V100", 32, {"24xlarge": 8}),
    "p4d": ("A100", 40, {"24xlarge": 8}),
    "p4de": ("A100", 80, {"24xlarge": 8}),
    "p5": ("H100", 80, {"4xlarge": 1, "48xlarge": 8}),
    "p5e": ("H200", 141, {"48xlarge": 8}),
    "p5en": ("H200", 141, {"48xlarge": 8}),
}


@dataclass(frozen=True)
class Gpus:
    """What an instance has."""

    name: str
    count: int
    memory_gib: int
    """Of each."""


GPU_TYPES: dict[str, Gpus] = {
    name: Gpus(gpu, count, memory)
    for family, (gpu, memory, sizes) in _FAMILIES.items()
    for size, count in sizes.items()
    if (name := f"ml.{family}.{size}") in TRAINING_INSTANCE_TYPES
}
"""By instance type, from the smallest family to the largest."""
