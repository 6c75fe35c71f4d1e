"""What a container of a replica does first: it runs the only process of the replica, or starts several."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path

from muster.contract.exits import ReplicaExit
from muster.contract.run.replica_variables import ENV_RANK
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.replica.entry.container_tree import Tree
from muster.replica.entry.main import main as run_alone
from muster.replica.entry.resolved_secrets import SecretError, resolve_secrets
from muster.replica.entry.toolkit_variables import toolkit_variables
from muster.replica.errors import GroupError, InputError
from muster.replica.group.cause import Cause
from muster.replica.group.instances import read_instances
from muster.replica.group.launched_group import PATIENCE, Group, Patience
from muster.replica.group.launcher import free_port, run_group
from muster.replica.group.process_count import processes_on_instance
from muster.replica.group.spawning import Crew, group_variables, the_spawner

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
    if instances.count * count == 1:
        variables.update(_variables_alone())
        return run_alone(variables)
    group = Group(
        instances,
        count,
        job=variables.get("TRAINING_JOB_NAME", "muster"),
        replica=variables.get(ENV_RANK, "0"),
        spawn=the_spawner(),
        patience=patience,
    )
    return _run_group(base, group)


def _variables_alone() -> dict[str, str]:
    """A program for several processes finds the same variables where there is one."""
    crew = Crew([], count=1, index=0, instances=1, master=("127.0.0.1", free_port()), name="")
    return group_variables(crew, 0)


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
