"""The instance types behind the protocol's abstract GPU names."""

from __future__ import annotations

from muster.contract.errors import MusterError

_TYPES = {
    "A100": "ml.p4d.24xlarge",
    "H100": "ml.p5.48xlarge",
    "H200": "ml.p5e.48xlarge",
    "B200": "ml.p6-b200.48xlarge",
    "L40S": "ml.g6e.12xlarge",
    "A10G": "ml.g5.2xlarge",
    "L4": "ml.g6.2xlarge",
}


class GpuError(MusterError):
    """A GPU that no instance type is known for."""

    def __init__(self, gpu: str) -> None:
        super().__init__(
            f"gpu: found {gpu!r}; one of {', '.join(_TYPES)}, or an instance type as ml.g5.2xlarge: name one of these."
        )


def instance_type_of(gpu: str) -> str:
    """The instance type for `gpu`, which may be one itself.

    Raises:
        GpuError: neither a known GPU nor an instance type.
    """
    if gpu.startswith("ml."):
        return gpu
    if gpu not in _TYPES:
        raise GpuError(gpu)
    return _TYPES[gpu]
