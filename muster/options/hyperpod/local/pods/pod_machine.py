"""What all pods of a cluster share; each has an address of its own, so that all can listen on the same port."""

from __future__ import annotations

import ipaddress
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.local.processes.process_pool import ProcessPool
from muster.local.sagemaker.log_shipping import LogSink

# Above those of training jobs (muster/local/sagemaker/job_hosts.py).
_FIRST = int(ipaddress.IPv4Address("127.240.0.1"))
_COUNT = 2**20 - 3


class Addresses:
    """Addresses that no other pod of this cloud has; those of another cloud are likely others. Thread-safe."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def take(self) -> str:
        """A free address."""
        with self._lock:
            while True:
                number = _FIRST + secrets.randbelow(_COUNT)
                if number not in self._used and number % 256 not in {0, 255}:
                    self._used.add(number)
                    return str(ipaddress.IPv4Address(number))

    def give_back(self, address: str) -> None:
        """The pod has ended."""
        with self._lock:
            self._used.discard(int(ipaddress.IPv4Address(address)))


@dataclass(frozen=True)
class PodMachine:
    """The machine below all nodes."""

    code: tuple[Path, ...]
    """Directories in the image of a container (`cloud_settings.Settings.code`)."""
    processes: ProcessPool
    place: Path
    """Folder of all pods and node file systems of this cluster."""
    endpoint: Mapping[str, str]
    """Environment variables with which a container reaches the services."""
    credentials: Callable[[Mapping[str, Any], Path], Mapping[str, str]]
    """The variables by which a pod that starts now gets credentials; the file is for its token."""
    open_log: Callable[[str], LogSink]
    """Opens the log stream of a node."""
    addresses: Addresses = field(default_factory=Addresses)
