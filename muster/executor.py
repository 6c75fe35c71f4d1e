"""Muster behind the ServerlessExecutor protocol: a drop-in replacement for SageMakerExecutor."""

from muster.options.executor.client.handle import HandleError, ReplicaHandle
from muster.options.executor.client.launching import GpuError
from muster.options.executor.client.muster_executor import MusterExecutor
from muster.options.executor.client.replica_result import CollectedResult

__all__ = ["CollectedResult", "GpuError", "HandleError", "MusterExecutor", "ReplicaHandle"]
