"""Muster behind the ServerlessExecutor protocol: a drop-in replacement for SageMakerExecutor."""

from muster.executor.executor import GpuError as GpuError
from muster.executor.executor import MusterExecutor as MusterExecutor
from muster.executor.handle import HandleError as HandleError
from muster.executor.handle import ReplicaHandle as ReplicaHandle

__all__ = ["GpuError", "HandleError", "MusterExecutor", "ReplicaHandle"]
