"""How the processes of an instance are started and ended: by torch's elastic launcher, or by a plain spawner.

torch's launcher is used where torch is there, because what runs on torch asks for what this launcher sets: the store of
the agent (TORCHELASTIC_USE_AGENT_STORE), TORCHELASTIC_RUN_ID, by which frameworks recognise processes that they need
not start, binding to NUMA nodes. Without torch nothing asks for these. Both start the same program with the same RANK,
LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; both end all processes of the instance when one
fails, with SIGTERM first.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields

from muster.replica.group.cause import End
from muster.replica.group.launched_group import END_SECONDS, Ends, Group, Master, Spawner

# Slower than the launcher looks (watch.LOOK_SECONDS): it must see how a process ended before the spawner reaps it.
_POLL_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_MEET_SECONDS = 900  # torch's default for a rendezvous: instances may start minutes apart


def group_variables(group: Group, master: Master, local_rank: int) -> dict[str, str]:
    """The variables from which torch, and what is built on it, learns of the group."""
    address, port = master
    return {
        "RANK": str(group.rank(local_rank)),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(group.size),
        "LOCAL_WORLD_SIZE": str(group.count),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def the_spawner() -> Spawner:
    """torch's launcher where torch is installed, the plain one elsewhere."""
    return spawn_with_torch if importlib.util.find_spec("torch") is not None else spawn_plainly


def spawn_plainly(group: Group, master: Master) -> Ends:
    """Start the processes of `group` as children of this one; see `Spawner`."""
    variables = [{**os.environ, **group_variables(group, master, local_rank)} for local_rank in range(group.count)]
    children = [subprocess.Popen(group.command, env=env, start_new_session=True) for env in variables]
    ends: Ends = {}
    kill_at: float | None = None
    while len(ends) < group.count:
        time.sleep(_POLL_SECONDS)
        for local_rank, child in enumerate(children):
            if local_rank not in ends and child.poll() is not None:
                ends[local_rank] = End(time.time(), child.returncode)
        running = [child for local_rank, child in enumerate(children) if local_rank not in ends]
        if kill_at is None and any(end.code != 0 for end in ends.values()):
            kill_at = time.monotonic() + END_SECONDS
            _signal_groups(running, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() > kill_at:
            _signal_groups(running, signal.SIGKILL)
    return ends


def _signal_groups(children: Sequence[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for child in children:
        signal_process(child.pid, number)


def signal_process(pid: int, number: signal.Signals) -> None:
    """Signal a process of the group and what it has started. It leads a process group of its own."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has ended


def end_with_parent() -> None:
    """On Linux: have the kernel kill this process when its parent is killed. It would train on without its replica."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn_with_torch(group: Group, master: Master) -> Ends:
    """Start the processes of `group` with torch's elastic launcher; see `Spawner`.

    Nothing is elastic here: the instances are known, and nothing is restarted, because a rerun of the replica is the
    restart. Called in another thread than the main one, torch's launcher leaves the handling of signals alone.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415 - where it is
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    if "signals_to_handle" not in {item.name for item in fields(LaunchConfig)}:
        # An older torch launches from the main thread alone, and takes SIGTERM there.
        return spawn_plainly(group, master)
    # It warns that it handles no signals, which is intended.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    address, port = master
    config = LaunchConfig(
        min_nodes=group.instances.count,
        max_nodes=group.instances.count,
        nproc_per_node=group.count,
        run_id=group.job,
        rdzv_backend="static",
        rdzv_endpoint=f"{address}:{port}",
        rdzv_configs={"rank": group.instances.index, "timeout": _MEET_SECONDS},
        max_restarts=0,
        monitor_interval=_POLL_SECONDS,
    )
    program, *arguments = group.command
    try:
        elastic_launch(config, program)(*arguments)
    except ChildFailedError as error:
        return {
            failure.local_rank: End(float(failure.timestamp), failure.exitcode) for failure in error.failures.values()
        }
    return {local_rank: End(time.time(), 0) for local_rank in range(group.count)}


def omp_threads(variables: Mapping[str, str], count: int, cores: int) -> dict[str, str]:
    """OMP_NUM_THREADS for `count` processes that share `cores`, unless the user has set it."""
    return {} if "OMP_NUM_THREADS" in variables else {"OMP_NUM_THREADS": str(max(1, cores // count))}
