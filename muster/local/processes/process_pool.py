"""Child processes, started by the keeper (see `keeper`): none outlives the service."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.local.processes import keeper
from muster.local.processes.keeper import Command

_END_SECONDS = 10.0  # if SIGKILL does not end a process in this time, only the kernel can
COMMAND_NOT_FOUND = 127  # what a shell and a container runtime exit with for a missing program


class Child:
    """The container of a job: its first process, and what that has started."""

    def __init__(self, identifier: str, pool: ProcessPool) -> None:
        self.id = identifier
        self._pool = pool
        self._ended = threading.Event()
        self.pid: int | None = None
        self.returncode: int | None = None
        """As in `subprocess`: negative for the signal that ended it, None while it runs."""
        self.missing: str | None = None
        """Why the program could not be started; None if it was."""

    @property
    def exit_code(self) -> int:
        """The exit code that a container runtime reports: 128 + n for signal n, 127 for a missing program."""
        if self.missing is not None:
            return COMMAND_NOT_FOUND
        code = self.returncode if self.returncode is not None else 0
        return code if code >= 0 else 128 - code

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._ended.is_set()

    def wait(self, timeout: float) -> bool:
        """Whether the process ended within `timeout` seconds."""
        return self._ended.wait(timeout)

    def signal(self, number: signal.Signals) -> None:
        """SIGTERM for the first process, or SIGKILL for all of them, if they are still there."""
        self._pool.send({"op": "signal", "id": self.id, "signal": int(number)})

    def answered(self, answer: Mapping[str, object]) -> None:
        """Update this process from an answer of the keeper."""
        if isinstance(pid := answer.get("pid"), int):
            self.pid = pid
            return
        if isinstance(code := answer.get("returncode"), int):
            self.returncode = code
        if isinstance(missing := answer.get("missing"), str):
            self.missing = missing
        self._ended.set()


class ProcessPool:
    """Starts children and learns of their ends. The keeper itself ends with the service.

    If the keeper is killed, the kernel kills its children, and another keeper is started for the next ones.
    """

    def __init__(self) -> None:
        self._identifiers = itertools.count(1)
        self._children: dict[str, Child] = {}
        self._lock = threading.Lock()
        self._keeper = self._start_keeper()

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        leads_group = os.getpgrp() == os.getpid()
        started = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid() if leads_group else 0)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(started,), name="keeper", daemon=True).start()
        return started

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> Child:
        """Start `argv` with exactly `env`; its output is appended to `log`."""
        child = self._new_child()
        self.send({"op": "spawn", "id": child.id, "argv": [*argv], "env": {**env}, "cwd": str(cwd), "log": str(log)})
        return child

    def _new_child(self) -> Child:
        child = Child(str(next(self._identifiers)), self)
        with self._lock:
            self._children[child.id] = child
        return child

    def send(self, command: Command) -> None:
        """Write one command to the keeper."""
        with self._lock:
            try:
                self._write(command)
            except BrokenPipeError:
                # The keeper was killed, and the children with it: the new one has none but a child that is started now.
                new = self._children.pop(command["id"], None)
                self._end_children()
                if new is not None:
                    self._children[command["id"]] = new
                self._keeper = self._start_keeper()
                self._write(command)

    def _write(self, command: Command) -> None:
        assert self._keeper.stdin is not None  # noqa: S101 - opened as a pipe above
        self._keeper.stdin.write(json.dumps(command).encode() + b"\n")
        self._keeper.stdin.flush()

    def end_all(self) -> None:
        """Kill every child; none runs when this returns."""
        last = self._new_child()
        self.send({"op": "end", "id": last.id})
        last.wait(timeout=_END_SECONDS)

    def _listen(self, to: subprocess.Popen[bytes]) -> None:
        assert to.stdout is not None  # noqa: S101 - opened as a pipe above
        for line in to.stdout:
            try:
                answer = json.loads(line)
                known = str(answer["id"])
            except (ValueError, TypeError, KeyError):
                continue  # none of the keeper's: what a library printed, for instance
            with self._lock:
                ended = "pid" not in answer
                child = self._children.pop(known, None) if ended else self._children.get(known)
            if child is not None:
                child.answered(answer)
        to.wait()
        with self._lock:
            if to is self._keeper:
                self._end_children()

    def _end_children(self) -> None:
        """The keeper has ended, and its jobs with it."""
        orphans, self._children = list(self._children.values()), {}
        for child in orphans:
            child.answered({"returncode": -int(signal.SIGKILL)})
