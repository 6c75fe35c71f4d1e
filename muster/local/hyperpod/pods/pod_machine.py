"""What all pods of a cluster share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from muster.local.cloud_settings import Settings
from muster.local.hyperpod.pods.addresses import Addresses
from muster.local.processes.process_pool import ProcessPool
from muster.local.sagemaker.log_shipping import LogSink


class PodIdentity(Protocol):
    """The pod identity agent and its webhook."""

    def variables(self, pod: Mapping[str, Any], token_file: Path) -> dict[str, str]:
        """What a pod that starts now is given to get credentials; nothing without an association."""


@dataclass(frozen=True)
class PodMachine:
    """The machine below all nodes."""

    settings: Settings
    processes: ProcessPool
    place: Path
    """Folder of all pods and node file systems of this cluster."""
    endpoint: Mapping[str, str]
    """Environment variables with which a container reaches the services."""
    identity: PodIdentity
    open_log: Callable[[str], LogSink]
    """Opens the log stream of a node."""
    addresses: Addresses = field(default_factory=Addresses)
