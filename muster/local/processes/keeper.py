"""The keeper: one small process that is the parent of every job, and ends them when the service ends.

It reads commands from its standard input, one JSON object a line, and answers on its standard
output. When the service closes that pipe, or dies in any way, the keeper reads the end of the
file, kills the process group of every job and the service's own group (its functions), and ends.
On Linux the kernel kills each job when the keeper itself is killed.

Run as a script with nothing but the standard library, so that it starts in a few milliseconds:
    python -I -S keeper.py SERVICE_GROUP
Commands: {"op": "spawn", "id", "argv", "env", "cwd", "log"}, {"op": "signal", "id", "signal"},
{"op": "end", "id"} (kill every job).
Answers: {"id", "pid"}, {"id", "returncode"}, {"id", "missing"} (no such program or directory),
{"id", "ended"} (no job is left).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Literal, TypedDict

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Spawn(TypedDict):
    """Start a job's process with exactly this environment; its output is appended to `log`."""

    op: Literal["spawn"]
    id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str


class Signal(TypedDict):
    """Signal a job's process group."""

    op: Literal["signal"]
    id: str
    signal: int


class End(TypedDict):
    """Kill every job."""

    op: Literal["end"]
    id: str


Command = Spawn | Signal | End


def _adopt_orphans() -> Callable[[], None] | None:
    """On Linux: become the parent of every orphan that a job leaves, in any process group.

    Returns what a new child calls there so that it is killed when the keeper is. Other systems have neither.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """The jobs by id, and the pipe to the service."""

    def __init__(self, service_group: int) -> None:
        self._service_group = service_group
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._on_start = _adopt_orphans()
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        # Only the service ends the keeper, no signal does. A handler that does nothing, because the jobs would inherit
        # SIG_IGN, and then no signal could end them.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Execute commands until the pipe is closed, then end every job."""
        pending = b""
        while True:
            readable, _, _ = select.select([0, self._wake_read], [], [])
            if self._wake_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if 0 in readable:
                chunk = os.read(0, 1 << 16)
                if not chunk:
                    break
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        self._end_jobs()
        if self._service_group:
            _kill_group(self._service_group)

    def _obey(self, command: Command) -> None:
        if command["op"] == "spawn":
            self._spawn(command)
            return
        if command["op"] == "end":
            self._end_jobs()
            self._answer({"id": command["id"], "ended": True})
            return
        child = self._children.get(command["id"])
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, command["signal"])

    def _spawn(self, command: Spawn) -> None:
        try:
            with open(command["log"], "ab") as log:  # noqa: PTH123 - pathlib would double the start time
                child = subprocess.Popen(
                    command["argv"],
                    env=command["env"],
                    cwd=command["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=self._on_start,  # noqa: PLW1509 - this process has one thread
                )
        except OSError as error:
            self._answer({"id": command["id"], "missing": error.strerror or str(error)})
            return
        self._children[command["id"]] = child
        self._answer({"id": command["id"], "pid": child.pid})

    def _reap(self) -> None:
        """Reap processes that have ended: those of jobs are reported, orphans are not."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            identifier = next((key for key, child in self._children.items() if child.pid == pid), None)
            if identifier is None:
                continue
            child = self._children.pop(identifier)
            child.returncode = os.waitstatus_to_exitcode(status)
            # A container ends with its first process, and all that this process started ends with it.
            _kill_group(pid)
            self._answer({"id": identifier, "returncode": child.returncode})

    def _answer(self, answer: dict[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(answer).encode() + b"\n")

    def _end_jobs(self) -> None:
        for child in self._children.values():
            _kill_group(child.pid)
        self._children.clear()
        with contextlib.suppress(ChildProcessError):
            while True:
                for orphan in _own_children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(orphan, signal.SIGKILL)
                os.waitpid(-1, 0)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _own_children() -> list[int]:
    """Children of this process from the kernel (Linux), adopted ones included."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listed:  # noqa: PTH123 - see _spawn
            return [int(child) for child in listed.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    Keeper(int(sys.argv[1])).run()
