"""Imports a Python program once, and then runs each command in a fork.

Starting a command line tool costs seconds, nearly all of them for its imports. The fork runs the tool's own entry point
with its own arguments, environment, working directory, input, output and exit code.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MUSTER = ("muster.client.cli.program", "muster.client.aws.connection", "muster.contract.spec.spec", "boto3")
"""The program `muster`, and what its commands import when they run."""


class Command:
    """A command that was started; `stdout` shows what it prints while it runs."""

    def __init__(self, server: CommandServer, arguments: Sequence[str], pid: int, out: Path, error: Path) -> None:
        self._server, self._arguments, self.pid, self.error = server, arguments, pid, error
        self.stdout = out.open(encoding="utf-8")  # waits until the command has opened it

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; the output is what was not read from `stdout` before."""
        with self.stdout as stdout:
            output = stdout.read()
        code = self._server.ask({"wait": self.pid})
        return subprocess.CompletedProcess([*self._arguments], code, output, self.error.read_text(encoding="utf-8"))


class CommandServer:
    """Runs commands of the first of `modules`; `python` has what all of them import.

    A command gets the environment that it is called with, except the variables that Python reads at start-up.
    """

    def __init__(self, python: Path, modules: Sequence[str], place: Path) -> None:
        self._place = place
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [str(python), "-P", __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # At the end of its input the server ends the commands that still run, and itself.
        self._process.communicate()

    def start(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str = "") -> Command:
        """Start one command."""
        number = next(self._numbers)
        given, out, error = (self._place / f"{number}.{name}" for name in ("in", "out", "error"))
        given.write_text(stdin, encoding="utf-8")
        os.mkfifo(out)
        request = {"arguments": [*arguments], "folder": str(folder), "environment": dict(environment)}
        pid = self.ask(request | {"files": [str(given), str(out), str(error)]})
        return Command(self, arguments, pid, out, error)

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return self.start(arguments, folder, environment, stdin).finish()

    def ask(self, request: Mapping[str, Any]) -> int:
        """Send the server a request; its answer."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


def serve(modules: Sequence[str]) -> None:
    """Import, then answer each line of standard input: start a command (its process ID), or wait for one (its code).

    Returns in the fork, with the command as this process's `sys.argv`; leaves at the end of the input.
    """
    for name in modules:
        importlib.import_module(name)
    running: set[int] = set()
    # Iteration would read ahead, so a fork would also get the next request.
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            running.remove(request["wait"])
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        if (command := os.fork()) == 0:
            _become(request)
            return
        running.add(command)
        print(command, flush=True)
    for command in running:
        os.kill(command, signal.SIGKILL)
    sys.exit()


def _become(request: Mapping[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, (path, flags) in enumerate(
        zip(request["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREAT), strict=True)
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv[:] = [sys.argv[1].partition(".")[0], *request["arguments"]]


if __name__ == "__main__":
    program, *others = sys.argv[1:]
    serve((program, *others))
    main = importlib.import_module(program).main
    # Muster's reads the arguments itself.
    sys.exit(main(sys.argv[1:]) if inspect.signature(main).parameters else main())
