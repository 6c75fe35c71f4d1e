"""Processes: which run, and those of an embedded cloud, found by their environment, so that a test can kill them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from muster.local import LocalCloud

_PROC = Path("/proc")


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def of_job(cloud: LocalCloud, job: str) -> list[int]:
    """The processes of a training job's containers, by number."""
    return sorted(_with_variable(cloud, f"TRAINING_JOB_NAME={job}"))


def of_function(cloud: LocalCloud, physical_name: str) -> list[int]:
    """The processes that serve a function; those that wait for an event, too."""
    # A forked process shows the environment of the process that it was forked from.
    forked = [pid for pid in _descendants(cloud) if _read(pid, "comm").strip() == physical_name[-15:].encode()]
    return forked + _with_variable(cloud, f"AWS_LAMBDA_FUNCTION_NAME={physical_name}")


def of_keeper(cloud: LocalCloud) -> list[int]:
    """The process below which the cloud runs all training jobs."""
    # The containers of jobs are forked from it.
    forks = [pid for pid in _descendants(cloud) if b"/processes/keeper.py" in _read(pid, "cmdline")]
    return [pid for pid in forks if _parent(pid) not in forks]


def kill(pids: list[int]) -> int:
    """Kill them with SIGKILL; how many were there."""
    killed = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed += 1
    return killed


def _with_variable(cloud: LocalCloud, variable: str) -> list[int]:
    wanted = variable.encode()
    return [pid for pid in _descendants(cloud) if wanted in _read(pid, "environ").split(b"\0")]


def _descendants(cloud: LocalCloud) -> Iterator[int]:
    """The processes that the service has started, at any depth."""
    parents = {int(entry.name): _parent(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdecimal()}
    for pid, parent in parents.items():
        above, seen = parent, {pid}
        while above and above not in seen:
            if above == cloud.state.pid:
                yield pid
                break
            seen.add(above)
            above = parents.get(above, 0)


def _parent(pid: int) -> int:
    # The name, in parentheses, may contain anything.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
