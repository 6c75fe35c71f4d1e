"""The instances of the replica's job, as SageMaker lists them in the container, or the first process of a pod."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from muster.replica.replica_errors import InputError

_FILE = Path("input", "config", "resourceconfig.json")
HOSTS_ORDERED = "hosts_ordered"
"""Says in the file of a pod that its hosts are in the order of their numbers: addresses sort in another one."""


@dataclass(frozen=True)
class Instances:
    """The hosts of a job. Every container has the same list, and reaches the others by these names."""

    hosts: tuple[str, ...]
    current: str
    interface: str | None = None
    """The network interface on which they reach each other, such as eth0."""

    @property
    def index(self) -> int:
        """This instance's number, from 0."""
        return self.hosts.index(self.current)

    @property
    def count(self) -> int:
        """The number of instances."""
        return len(self.hosts)

    @property
    def first(self) -> str:
        """The host on which the replica's first process runs."""
        return self.hosts[0]


ALONE = Instances(("localhost",), "localhost")
"""A container that SageMaker did not start has no list."""


def read_instances(base: Path) -> Instances:
    """The instances in `base`/input/config/resourceconfig.json (`base` is /opt/ml).

    Raises:
        InputError: the file cannot be used.
    """
    path = base / _FILE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ALONE
    except (OSError, ValueError) as error:
        raise InputError([f"{path} cannot be read: {error}"]) from None
    hosts = found.get("hosts") if isinstance(found, dict) else None
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) for host in hosts):
        raise InputError([f"{path} lists no hosts (hosts: names of all instances of the job)"])
    current, interface = found.get("current_host"), found.get("network_interface_name")
    if current not in hosts or len(set(hosts)) < len(hosts):
        raise InputError([f"{path} has the current_host {current!r}, not exactly one of its hosts {hosts}"])
    # By number: SageMaker sorts the names as text, so algo-10 comes before algo-2.
    ordered = hosts if found.get(HOSTS_ORDERED) is True else sorted(hosts, key=lambda host: (len(host), host))
    return Instances(tuple(ordered), current, interface if isinstance(interface, str) and interface else None)
