"""What all pods of a cluster share; each has an address of its own, so that all can listen on the same port."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.local.processes.process_pool import ProcessPool
from muster.local.sagemaker.log_shipping import LogSink

# Above those of training jobs (muster/local/sagemaker/job_hosts.py).
_FIRST = ipaddress.IPv4Address("127.240.0.1")
_COUNT = 2**20 - 3


def _numbers() -> Iterator[int]:
    """No number comes twice in a cloud; those of another cloud on this machine are likely others."""
    return itertools.count(secrets.randbelow(_COUNT))


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
    numbers: Iterator[int] = field(default_factory=_numbers)
    """Of the pods' addresses."""

    def new_address(self) -> str:
        """An address that no other pod has."""
        return str(_FIRST + next(self.numbers) % _COUNT)
