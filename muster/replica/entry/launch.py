"""What a container of a replica does first: it runs the only process of the replica, or starts several."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from muster.contract.exits import ReplicaExit
from muster.contract.run.replica_variables import ENV_PROCESSES, ENV_RANK
from muster.contract.training.resources import AUTO, PROCESSES_MAX
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.replica.entry.container_tree import Tree
from muster.replica.entry.main import main as run_alone
from muster.replica.entry.resolved_secrets import SecretError, resolve_secrets
from muster.replica.entry.toolkit_variables import toolkit_variables
from muster.replica.group.cause import Cause
from muster.replica.group.instances import read_instances
from muster.replica.group.launched_group import PATIENCE, Group, Patience
from muster.replica.group.launcher import free_port, run_group
from muster.replica.group.spawning import group_variables, the_spawner
from muster.replica.replica_errors import GroupError, InputError

_GPU = re.compile(r"nvidia\d+")
_DEVICES = Path("/dev")

log = logging.getLogger("muster.replica")


def main(variables: MutableMapping[str, str], patience: Patience = PATIENCE) -> int:
    """Run the processes of this container; returns the exit code. `variables` is this process's environment."""
    base = Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)
    try:
        if "TORCHELASTIC_RUN_ID" in variables:
            message = (
                "Muster was started by torchrun, but starts the processes of a replica itself: name the trainer in the "
                "spec, and set processes"
            )
            raise InputError([message])
        instances, count = read_instances(base), processes_on_instance(variables)
        resolve_secrets(variables)
    except InputError as error:
        return _failed(base, Cause(ReplicaExit.BAD_INPUT, str(error)))
    except SecretError as error:
        return _failed(base, Cause(error.code, str(error)))
    for name, value in toolkit_variables(base).items():
        variables.setdefault(name, value)
    group = Group(
        instances,
        count,
        job=variables.get("TRAINING_JOB_NAME", "muster"),
        replica=variables.get(ENV_RANK, "0"),
        spawn=the_spawner(),
        patience=patience,
    )
    if group.size > 1:
        return _run_group(base, group)
    # A program for several processes finds the same variables where there is one.
    variables.update(group_variables(group, ("127.0.0.1", free_port()), 0))
    return run_alone(variables)


def _run_group(base: Path, group: Group) -> int:
    logging.basicConfig(level=logging.INFO, format="muster %(levelname)s %(message)s", stream=sys.stderr)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    instances = group.instances
    log.info("event=group instances=%d processes=%d host=%s", instances.count, group.count, instances.current)
    try:
        cause = run_group(group, stop)
    except GroupError as error:
        cause = Cause(ReplicaExit.RENDEZVOUS, str(error))
    return ReplicaExit.DONE if cause is None else _failed(base, cause)


def _failed(base: Path, cause: Cause) -> int:
    log.error("%s", cause.text)
    Tree(base).write_failure(cause.reason)
    return cause.code


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
