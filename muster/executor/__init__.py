"""Muster behind the ServerlessExecutor protocol: a drop-in replacement for SageMakerExecutor."""

from muster.executor.executor import MusterExecutor as MusterExecutor
from muster.executor.handle import HandleError as HandleError
from muster.executor.handle import ReplicaHandle as ReplicaHandle
from muster.executor.launching import GpuError as GpuError
from muster.executor.replica_result import CollectedResult as CollectedResult

__all__ = ["CollectedResult", "GpuError", "HandleError", "MusterExecutor", "ReplicaHandle"]
