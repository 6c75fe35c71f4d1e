"""AWS's elastic agent, to which the operator talks: how it is started. One worker per pod, which is Muster's own.

The facts are those of hyperpod-elastic-agent 1.1.3 (`hyperpodrun`): torchrun's arguments and some of its own. It needs
NNODES in its environment, and writes below /opt/ml/input/config. A worker ends with SIGKILL unless a signal is named,
and the operator's rules read a worker's output only where the agent keeps it in files (`--tee`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from muster.contract.training.source_delivery import PACKAGE_SUFFIX
from muster.options.hyperpod.contract.pod_bootstrap import AGENT_PORT
from muster.options.hyperpod.replica.hosts import own_address
from muster.options.hyperpod.replica.pod import Pod
from muster.replica.replica_errors import InputError

AGENT = "hyperpodrun"
WORKER_STOP_SECONDS = 120
"""How long a worker may take after SIGTERM: as long as SageMaker waits."""
_WORKER = "muster.options.hyperpod.replica.worker"
_MONITOR_SECONDS = 0.2
# A worker's lines stay as they are: the prefix is its role's name, and the role has none.
_LINES = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${role_name}"}
_NO_ROLE = ""
# What the agent sets for a worker, beside HYPERPOD_*. The replica's launcher sets its own for its processes.
_SET_BY_AGENT = {
    *("LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE"),
    *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_RESTART_COUNT"),
}
_TORCHELASTIC = "TORCHELASTIC_"


def find_agent(variables: Mapping[str, str]) -> str:
    """The path of the agent's program.

    Raises:
        InputError: the image has none.
    """
    found = shutil.which(AGENT, path=variables.get("PATH"))
    if found is None:
        message = (
            f"the image has no {AGENT}, through which HyperPod's operator starts a pod's program: install "
            "hyperpod-elastic-agent in it"
        )
        raise InputError([message])
    return found


def agent_command(agent: str, pod: Pod, logs: Path) -> list[str]:
    """The command that starts the agent; `logs` is the folder for its workers' output."""
    arguments = {
        "--nnodes": str(pod.work.instances),
        "--nproc-per-node": "1",
        "--rdzv-backend": "hyperpod",
        "--rdzv-id": pod.work.job,
        "--monitor-interval": str(_MONITOR_SECONDS),
        "--shutdown-signal": "SIGTERM",
        "--shutdown-timeout": str(WORKER_STOP_SECONDS),
        "--server-host": pod.address or own_address(),
        "--server-port": str(AGENT_PORT),
        "--server-log-level": "warning",  # else a line for each look of the operator
        "--tee": "3",
        "--log-dir": str(logs),
        "--role": _NO_ROLE,
    }
    return [agent, *[f"{name}={value}" for name, value in arguments.items()], "--no-python", *worker_command()]


def agent_variables(variables: Mapping[str, str], pod: Pod) -> dict[str, str]:
    """The environment of the agent, which its workers inherit."""
    return {"NNODES": str(pod.work.instances), **variables, **_LINES}


def worker_command() -> list[str]:
    """The command of the agent's worker: in this Python, from the package that this process runs from."""
    package = next((parent for parent in Path(__file__).parents if parent.suffix == PACKAGE_SUFFIX), None)
    if package is not None:
        return [sys.executable, str(package), "--run", _WORKER]
    return [sys.executable, "-P", "-m", _WORKER]


def program_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of the pod's program: without what the agent has set for a process of torch."""
    return {
        name: value
        for name, value in variables.items()
        if name not in _SET_BY_AGENT and not name.startswith(_TORCHELASTIC)
    }
