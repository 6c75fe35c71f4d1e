"""Imports a Python program once, and then runs each command in a fork.

Starting a command line tool costs seconds, nearly all of them for its imports. The fork runs the tool's own entry point
with its own arguments, environment, working directory, output and exit code.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class CommandServer:
    """Runs commands of `module`, one at a time; `python` has what the module and `also` import.

    A command gets the environment that it is called with, except the variables that Python reads at start-up.
    """

    def __init__(self, python: Path, module: str, also: Sequence[str], place: Path) -> None:
        self._place = place
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [str(python), "-P", __file__, module, *also], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        assert self._process.stdin
        assert self._process.stdout
        out, error = (self._place / f"{next(self._numbers)}" for _ in range(2))
        request = {"arguments": [*arguments], "folder": str(folder), "environment": dict(environment)}
        print(json.dumps(request | {"out": str(out), "error": str(error)}), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return subprocess.CompletedProcess([*arguments], code, out.read_text(), error.read_text())


def serve(module: str, also: Sequence[str]) -> None:
    """Import, then run a command for each line of standard input; write its exit code.

    Returns in the fork, with the command as this process's `sys.argv`; leaves at the end of the input.
    """
    for name in (module, *also):
        importlib.import_module(name)
    # Iteration would read ahead, so a fork would also get the next request.
    while line := sys.stdin.readline():
        request = json.loads(line)
        if (command := os.fork()) == 0:
            _become(request)
            return
        _, status = os.waitpid(command, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def _become(request: dict[str, object]) -> None:
    environment = request["environment"]
    arguments = request["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["error"])):
        opened = os.open(str(path), os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv[:] = [sys.argv[1].partition(".")[0], *arguments]


if __name__ == "__main__":
    _, program, *others = sys.argv
    serve(program, others)
    main = importlib.import_module(program).main
    # Muster's reads the arguments itself.
    sys.exit(main(sys.argv[1:]) if inspect.signature(main).parameters else main())
