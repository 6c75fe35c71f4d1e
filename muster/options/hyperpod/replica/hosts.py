"""The pods of a replica, as the operator has put them together for a start: they become resourceconfig.json.

The agent gives a worker its number (GROUP_RANK), the number of pods, and the address of the first one (MASTER_ADDR).
Where the operator also sends the addresses of all, the agent has written them to pod_resourceconfig.json.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.options.hyperpod.replica.folder import write_json
from muster.replica.group.instances import HOSTS_ORDERED
from muster.replica.replica_errors import InputError

_AGENTS_FILE = "pod_resourceconfig.json"
_LOOPBACK, _USUAL = "lo", "eth0"
_INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True)
class Hosts:
    """The addresses of the pods, in the order of their numbers, and this pod's number."""

    hosts: tuple[str, ...]
    index: int

    @property
    def is_first(self) -> bool:
        """Whether this pod writes what the replica writes once."""
        return self.index == 0


def read_hosts(variables: Mapping[str, str], base: Path, address: str) -> Hosts:
    """The pods of this start, by what the agent has set for its worker. `address`: this pod's own, if it is known.

    Raises:
        InputError: the agent has set something else; lists everything that is wrong.
    """
    problems: list[str] = []
    count = _number(variables, "GROUP_WORLD_SIZE", 1, problems)
    index = _number(variables, "GROUP_RANK", 0, problems)
    master = variables.get("MASTER_ADDR", "")
    if not master and count > 1:
        problems.append("MASTER_ADDR is not set (the address of the replica's first pod, from the operator)")
    if not problems and index >= count:
        problems.append(f"GROUP_RANK is {index}, but GROUP_WORLD_SIZE is {count}")
    if problems:
        raise InputError([f"the elastic agent's environment: {problem}" for problem in problems])
    own = address or own_address()
    if count == 1:
        return Hosts((own,), 0)
    listed = _listed(base, count)
    if listed is None:
        # Only the first one is called by its address.
        listed = [f"pod-{number}" for number in range(count)]
        listed[index] = own
    # The name that the operator has given it is sure to be reached.
    listed[0] = master
    return Hosts(tuple(listed), index)


def write_resource_config(hosts: Hosts, base: Path) -> None:
    """Write resourceconfig.json, as SageMaker does for the instances of a job."""
    path = base / "input" / "config" / "resourceconfig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    own = hosts.hosts[hosts.index]
    content: dict[str, object] = {"current_host": own, "hosts": list(hosts.hosts), HOSTS_ORDERED: True}
    if (interface := _interface(own)) is not None:
        content["network_interface_name"] = interface
    write_json(path, content)


def _number(variables: Mapping[str, str], name: str, least: int, problems: list[str]) -> int:
    text = variables.get(name, "")
    if text.isascii() and text.isdigit() and int(text) >= least:
        return int(text)
    problems.append(f"{name} is {text!r}, not a whole number from {least}")
    return least


def _listed(base: Path, count: int) -> list[str] | None:
    """The addresses that the agent has written; None where they are not those of this start."""
    try:
        found = json.loads((base / "input" / "config" / _AGENTS_FILE).read_text())["ips"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    fits = isinstance(found, list) and len(found) == count and all(isinstance(item, str) and item for item in found)
    return found if fits and len(set(found)) == count else None


def own_address() -> str:
    """The address by which Kubernetes knows this pod, as its own hosts file has it."""
    try:
        return str(socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0])
    except OSError:
        return "localhost"


def _interface(address: str) -> str | None:
    """The interface on which the pods reach each other; None where it is not known."""
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        is_loopback = False
    name = _LOOPBACK if is_loopback else _USUAL
    return name if (_INTERFACES / name).exists() else None
