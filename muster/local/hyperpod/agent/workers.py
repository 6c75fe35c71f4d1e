"""The worker processes of one stage, their output, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_POLL_SECONDS = 0.02
_STATUS_OF_ONE = 256  # of waitpid, for each unit of an exit code
_NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass(frozen=True)
class Failure:
    """A worker that has failed. `exit_code` as the agent shows it, which is -256 times the process's own."""

    local_rank: int
    exit_code: int
    message: str


@dataclass(frozen=True)
class Output:
    """Where the output of workers goes."""

    root: Path
    to_file: bool
    to_console: bool
    prefixes: tuple[str, ...]
    """Before each line of a worker on the console where the output is in a file too, by local rank."""


class Workers:
    """The processes of a stage, one for each local rank. Not thread-safe; the agent's loop owns it."""

    def __init__(
        self, program: Sequence[str], variables: Sequence[Mapping[str, str]], output: Output, attempt: int
    ) -> None:
        self._output = output
        place = output.root / f"attempt_{attempt}"
        shutil.rmtree(place, ignore_errors=True)
        self._places = [place / str(rank) for rank in range(len(variables))]
        self._tails: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank, own in enumerate(variables):
            self._processes.append(self._start(program, own, rank))

    def _start(self, program: Sequence[str], own: Mapping[str, str], rank: int) -> subprocess.Popen[bytes]:
        place = self._places[rank]
        place.mkdir(parents=True)
        environment = {**os.environ, **own, "TORCHELASTIC_ERROR_FILE": str(place / "error.json")}
        if not self._output.to_file:
            return subprocess.Popen(program, env=environment, start_new_session=True)
        process = subprocess.Popen(
            program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        for stream, name, console in (
            (process.stdout, "stdout.log", sys.stdout),
            (process.stderr, "stderr.log", sys.stderr),
        ):
            if stream is None:
                continue
            tail = threading.Thread(
                target=self._copy, args=(stream, place / name, console.buffer, rank), name=name, daemon=True
            )
            tail.start()
            self._tails.append(tail)
        return process

    def _copy(self, stream: IO[bytes], file: Path, console: IO[bytes], rank: int) -> None:
        prefix = self._output.prefixes[rank].encode()
        with file.open("ab", buffering=0) as log:
            for line in stream:
                log.write(line)
                if self._output.to_console:
                    console.write(prefix + line)
                    console.flush()

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return all(process.poll() is not None for process in self._processes)

    def failures(self) -> list[Failure]:
        """The workers that have failed."""
        return [
            Failure(rank, _shown(process.returncode), self._message(rank, process))
            for rank, process in enumerate(self._processes)
            if process.poll()
        ]

    def _message(self, rank: int, process: subprocess.Popen[bytes]) -> str:
        with contextlib.suppress(OSError):
            message = json.loads((self._places[rank] / "error.json").read_bytes())["message"]
            if not isinstance(message, dict):
                return str(message)
            int(message["extraInfo"]["timestamp"])  # as torch reads it: without, the agent ends with this error
            return str(message["message"])
        shown = _shown(process.returncode)
        try:
            name = signal.Signals(-shown).name
        except ValueError:
            name = "<N/A>"
        return f"Signal {-shown} ({name}) received by PID {process.pid}" if shown < 0 else _NO_TRACEBACK

    def stop(self, number: signal.Signals, seconds: float) -> None:
        """Send a signal to each worker's group, and SIGKILL to those that run on after `seconds`."""
        self._send(number)
        deadline = time.monotonic() + seconds
        while not self.ended and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        for tail in self._tails:
            tail.join(timeout=1.0)

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)


def _shown(code: int) -> int:
    """An exit code as the agent shows it: its handler of SIGCHLD keeps the status of waitpid, and negates that."""
    return code if code <= 0 else -code * _STATUS_OF_ONE
