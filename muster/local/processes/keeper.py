"""The keeper: one small process below which every job runs, and which ends them when the service ends.

It reads commands from its standard input, one JSON object a line, and answers on its standard
output. When the service closes that pipe, or dies in any way, the keeper reads the end of the
file, kills every job and the service's own group (its functions), and ends. On Linux the kernel
kills each job when the keeper itself is killed.

Each job has a container: a fork of the keeper, which starts the job's first process. As in a real
container, SIGTERM reaches the first process alone, and all that runs ends when the first process
ends, in whatever session it is.

Run as a script with nothing but the standard library, so that it starts in a few milliseconds:
    python -I -S keeper.py SERVICE_GROUP
Commands: {"op": "spawn", "id", "argv", "env", "cwd", "log"}, {"op": "signal", "id", "signal"}
(SIGTERM or SIGKILL), {"op": "end", "id"} (kill every job).
Answers: {"id", "pid"}, {"id", "returncode"}, {"id", "missing"} (no such program or directory),
{"id", "ended"} (no job is left).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Literal, NoReturn, TypedDict

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
    """SIGTERM for a job's first process, or SIGKILL for all of them."""

    op: Literal["signal"]
    id: str
    signal: int


class End(TypedDict):
    """Kill every job."""

    op: Literal["end"]
    id: str


Command = Spawn | Signal | End


# What a container waits for. A container gets _KILL for SIGKILL, which it could not handle.
_KILL = signal.SIGUSR1
_AWAITED = {signal.SIGCHLD, signal.SIGTERM, _KILL}


def _adopt_orphans() -> Callable[[], None]:
    """On Linux: become the parent of every orphan below this process, in any process group.

    Returns what a new child calls there so that it is killed when this process is. Other systems have neither.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Container:
    """A job's processes: in a fork of the keeper, which becomes the parent of all of them."""

    def __init__(self, command: Spawn) -> None:
        self._command = command
        self._on_start = _adopt_orphans()

    def run(self, started: int) -> NoReturn:
        """Start the job, write to `started` (a file descriptor) how that went, and end as the first process does."""
        try:
            first = self._start()
        except OSError as error:
            _answer_once(started, {"missing": error.strerror or str(error)})
            os._exit(0)
        _answer_once(started, {"pid": first.pid})
        code = self._wait_for(first)
        _kill_group(first.pid)
        _kill_children()
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os._exit(code)

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._command
        with open(command["log"], "ab") as log:  # noqa: PTH123 - pathlib would double the start time
            return subprocess.Popen(
                command["argv"],
                env=command["env"],
                cwd=command["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._prepare,  # noqa: PLW1509 - this process has one thread
            )

    def _prepare(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        self._on_start()

    def _wait_for(self, first: subprocess.Popen[bytes]) -> int:
        """The return code of the first process. Signals are passed on, and orphans reaped meanwhile."""
        while True:
            number = signal.sigwait(_AWAITED)
            if number == signal.SIGTERM:
                os.kill(first.pid, signal.SIGTERM)
            elif number == _KILL:
                os.kill(first.pid, signal.SIGKILL)
            while (ended := _reaped()) is not None:
                if ended[0] == first.pid:
                    return ended[1]


class Keeper:
    """The jobs by id, and the pipe to the service."""

    def __init__(self, service_group: int) -> None:
        self._service_group = service_group
        self._containers: dict[str, int] = {}
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
        container = self._containers.get(command["id"])
        if container is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(container, _KILL if command["signal"] == signal.SIGKILL else command["signal"])

    def _spawn(self, command: Spawn) -> None:
        read, write = os.pipe()
        # A signal waits until the container waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        container = os.fork()
        if container == 0:
            self._become_container(command, write)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        os.close(write)
        with open(read, "rb") as started:  # noqa: PTH123 - a file descriptor
            answer = json.loads(started.read() or b"{}")
        if "missing" not in answer:
            self._containers[command["id"]] = container
        if answer:
            self._answer({"id": command["id"], **answer})

    def _become_container(self, command: Spawn, started: int) -> NoReturn:
        """In the fork: leave what belongs to the keeper."""
        try:
            self._on_start()
            os.setsid()
            signal.set_wakeup_fd(-1)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
            Container(command).run(started)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """Reap processes that have ended: containers are reported, orphans are not."""
        while (ended := _reaped()) is not None:
            pid, code = ended
            identifier = next((key for key, container in self._containers.items() if container == pid), None)
            if identifier is not None:
                del self._containers[identifier]
                self._answer({"id": identifier, "returncode": code})

    def _answer(self, answer: dict[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(answer).encode() + b"\n")

    def _end_jobs(self) -> None:
        for container in self._containers.values():
            with contextlib.suppress(ProcessLookupError):
                # On Linux what it contains becomes this process's; elsewhere the container kills it.
                os.kill(container, signal.SIGKILL if sys.platform.startswith("linux") else _KILL)
        self._containers.clear()
        _kill_children()


def _answer_once(file: int, answer: dict[str, object]) -> None:
    os.write(file, json.dumps(answer).encode())
    os.close(file)


def _reaped() -> tuple[int, int] | None:
    """A child that has ended and its return code, as in `subprocess`; None if there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _kill_children() -> None:
    """Kill every child of this process, adopted ones included, until there is none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in _own_children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
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
