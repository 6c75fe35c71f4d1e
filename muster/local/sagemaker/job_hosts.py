"""The instances of one job: their names, and their addresses on the loopback interface.

SageMaker gives every container a network of its own, and resolves the names of the others in it. On this machine each
instance has its own loopback address, so that all can listen on the same port, as instances can. Their names are
known to Python programs alone (see `host_names/sitecustomize.py`): a machine-wide name would need root.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import ResourceConfigUnionTypeDef

HOST_NAMES = Path(__file__).parent / "host_names"
ENV_HOSTS = "MUSTER_LOCAL_HOSTS"
_FIRST_BLOCK = ipaddress.IPv4Address("127.16.0.0")
_BLOCK = 4096  # addresses for one job
_BLOCKS = 3584  # up to 127.239.255.255
LOOPBACK = "lo" if sys.platform.startswith("linux") else "lo0"


@dataclass(frozen=True)
class Host:
    """One instance: its name in resourceconfig.json, and its address."""

    name: str
    address: str


def several_possible() -> bool:
    """Whether this machine can run a job of several instances: only Linux answers on every loopback address."""
    return sys.platform.startswith("linux")


def hosts_of(resources: ResourceConfigUnionTypeDef) -> list[Host]:
    """The hosts of a new cluster: algo-1 and so on, at addresses that no other job has."""
    preferences = resources.get("InstancePreferences")
    count = resources.get("InstanceCount") or (preferences[0].get("InstanceCount") if preferences else None) or 1
    if count == 1:
        return [Host("algo-1", "127.0.0.1")]
    block = _FIRST_BLOCK + secrets.randbelow(_BLOCKS) * _BLOCK
    return [Host(f"algo-{number}", str(block + number)) for number in range(1, count + 1)]


def name_variables(hosts: list[Host], variables: Mapping[str, str]) -> dict[str, str]:
    """What makes the hosts' names known in a process with these variables; nothing for a single instance."""
    if len(hosts) == 1:
        return {}
    path = os.pathsep.join([str(HOST_NAMES), *filter(None, [variables.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, ENV_HOSTS: ",".join(f"{host.name}={host.address}" for host in hosts)}
