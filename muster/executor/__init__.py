"""Muster behind the ServerlessExecutor protocol: a drop-in for the former SageMakerExecutor."""

from muster.executor.executor import MusterExecutor as MusterExecutor
from muster.executor.handle import ReplicaHandle as ReplicaHandle

__all__ = ["MusterExecutor", "ReplicaHandle"]
