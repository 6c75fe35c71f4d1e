"""How many processes a replica has on an instance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from muster.contract.run.replica_variables import ENV_PROCESSES
from muster.contract.training.resources import AUTO, PROCESSES_MAX
from muster.replica.errors import InputError

_GPU = re.compile(r"nvidia\d+")
_DEVICES = Path("/dev")


def processes_on_instance(variables: Mapping[str, str], devices: Path = _DEVICES) -> int:
    """The number that the spec asks for; with `auto` the container's GPUs, and 1 if it has none.

    GPUs are counted in the container and not looked up by instance type: SageMaker may choose among several types. A
    job of an older version of Muster does not say how many, and has one.

    Raises:
        InputError: the environment asks for no such number.
    """
    asked = variables.get(ENV_PROCESSES) or "1"
    if asked == AUTO:
        return max(1, _gpus(variables, devices))
    if asked.isascii() and asked.isdigit() and 1 <= int(asked) <= PROCESSES_MAX:
        return int(asked)
    raise InputError([f"{ENV_PROCESSES} is {asked!r}, neither {AUTO} nor a whole number from 1 to {PROCESSES_MAX}"])


def _gpus(variables: Mapping[str, str], devices: Path) -> int:
    found = sum(_GPU.fullmatch(path.name) is not None for path in devices.iterdir())
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    # CUDA uses the devices in front of the first number that is none, such as -1.
    names = [name.strip() for name in visible.split(",")]
    hidden = next((place for place, name in enumerate(names) if not name or name.startswith("-")), len(names))
    return min(found, hidden)
