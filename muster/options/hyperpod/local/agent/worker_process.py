"""The worker process of a pod, its output, and how it ends."""

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
from pathlib import Path
from typing import IO

_POLL_SECONDS = 0.02
_STATUS_OF_ONE = 256  # of waitpid, for each unit of an exit code


class Worker:
    """The process. Not thread-safe; the agent's loop owns it."""

    def __init__(self, program: Sequence[str], variables: Mapping[str, str], place: Path, prefix: str | None) -> None:
        """`prefix`: before each line on the console where the output is also kept in files; None: it is not."""
        self._prefix = (prefix or "").encode()
        shutil.rmtree(place, ignore_errors=True)
        self._place = place / "0"
        self._place.mkdir(parents=True)
        self._tails: list[threading.Thread] = []
        environment = {**os.environ, **variables, "TORCHELASTIC_ERROR_FILE": str(self._place / "error.json")}
        piped = None if prefix is None else subprocess.PIPE
        self._process = subprocess.Popen(program, env=environment, stdout=piped, stderr=piped, start_new_session=True)
        for stream, name, console in (
            (self._process.stdout, "stdout.log", sys.stdout),
            (self._process.stderr, "stderr.log", sys.stderr),
        ):
            if stream is not None:
                arguments = (stream, self._place / name, console.buffer)
                self._tails.append(threading.Thread(target=self._copy, args=arguments, name=name, daemon=True))
                self._tails[-1].start()

    def _copy(self, stream: IO[bytes], file: Path, console: IO[bytes]) -> None:
        with file.open("ab", buffering=0) as log:
            for line in stream:
                log.write(line)
                console.write(self._prefix + line)
                console.flush()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def failure(self) -> str:
        """How it has failed, in the agent's words, which shows an exit code as -256 times itself; empty if it has not.

        The agent's handler of SIGCHLD keeps the status of waitpid, and negates that.
        """
        code = self._process.poll()
        if not code:
            return ""
        shown = code if code < 0 else -code * _STATUS_OF_ONE
        return f"Local Rank 0 exited with code {shown} due to: {self._message(shown)}"

    def _message(self, shown: int) -> str:
        with contextlib.suppress(OSError):
            message = json.loads((self._place / "error.json").read_bytes())["message"]
            if not isinstance(message, dict):
                return str(message)
            int(message["extraInfo"]["timestamp"])  # as torch reads it: without, the agent ends with this error
            return str(message["message"])
        try:
            name = signal.Signals(-shown).name
        except ValueError:
            name = "<N/A>"
        return f"Signal {-shown} ({name}) received by PID {self._process.pid}"

    def stop(self, number: signal.Signals, seconds: float) -> None:
        """Send a signal to the worker's group, and SIGKILL if it runs on after `seconds`."""
        self._send(number)
        deadline = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._send(signal.SIGKILL)
        self._process.wait()
        for tail in self._tails:
            tail.join(timeout=1.0)

    def _send(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
