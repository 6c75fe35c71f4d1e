"""Processes that do one piece of work for each line of their standard input, and answer it with a line of JSON."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, TextIO

_PRINTED = 4000  # characters of what the processes have printed, in an error


@dataclass(frozen=True)
class Worker:
    """How a process is started: its command and its environment."""

    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Workers:
    """Running processes, by name."""

    _processes: Mapping[str, subprocess.Popen[str]]
    _errors: IO[bytes]

    def answers(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Let the workers (or those named) do one piece of work at the same time.

        Raises:
            RuntimeError: one has ended, or was killed because its time was over.
        """
        chosen = list(self._processes if names is None else names)
        for name in chosen:
            try:
                stdin = _open(self._processes[name].stdin)
                stdin.write("\n")
                stdin.flush()
            except BrokenPipeError:
                self._failed(name)
        return {name: self._answer(name) for name in chosen}

    def _answer(self, name: str) -> Any:
        return json.loads(_open(self._processes[name].stdout).readline() or self._failed(name))

    def _failed(self, name: str) -> str:
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace")[-_PRINTED:]
        message = f"{name} has ended, or its time was over. What the processes printed: {printed}"
        raise RuntimeError(message)


@contextmanager
def running_workers(workers: Mapping[str, Worker], limit_seconds: float) -> Iterator[Workers]:
    """The workers, each in a process of its own, until the context ends or the time is over: then they are killed."""
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        processes: dict[str, subprocess.Popen[str]] = {}
        for name, worker in workers.items():
            processes[name] = subprocess.Popen(
                list(worker.command),
                env=dict(worker.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            stack.callback(_end, processes[name])
        timer = threading.Timer(limit_seconds, _kill, [processes.values()])
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        yield Workers(processes, errors)


def _kill(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    # Not what was not yet read: the process is gone.
    for stream in (process.stdin, process.stdout):
        try:
            _open(stream).close()
        except BrokenPipeError:
            continue


def _open(stream: TextIO | Any) -> TextIO:
    assert stream is not None
    return stream
