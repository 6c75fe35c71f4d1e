"""The processes of functions: those that share their code are forked from a server, except for the first.

MiniStack starts a Python interpreter for every execution environment, which then imports the AWS SDK: most of what a
cold start costs here. See `function_server`.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

from muster.local.ministack import function_server

# Libraries of macOS do not survive a fork.
_FORKS = sys.platform.startswith("linux")


class ForkedProcess:
    """A forked process, as far as MiniStack uses `subprocess.Popen`: its streams are text, by lines."""

    def __init__(self, server: ForkServer, streams: tuple[TextIO, TextIO, TextIO]) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self.pid = 0
        self.returncode: int | None = None
        """As in `subprocess`: negative for the signal that ended it, None while it runs."""
        self._server = server
        self._started = threading.Event()
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """The return code; None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once the process has ended.

        Raises:
            subprocess.TimeoutExpired: it has not within `timeout` seconds.
        """
        if not self._ended.wait(timeout):
            name = f"process {self.pid}"
            raise subprocess.TimeoutExpired(name, timeout or 0.0)
        assert self.returncode is not None  # noqa: S101 - set before the event
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM, if the process still runs."""
        self._server.signal(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if the process still runs."""
        self._server.signal(self.pid, signal.SIGKILL)

    def wait_for_start(self) -> None:
        """Wait until the process has its id, or will never have one."""
        self._started.wait()

    def started(self, pid: int) -> None:
        """Set the process id."""
        self.pid = pid
        self._started.set()

    def ended(self, code: int) -> None:
        """Set the return code."""
        self.returncode = code
        self._started.set()
        self._ended.set()


class ForkServer:
    """One server, for the code in one folder."""

    def __init__(self, code: Path) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", function_server.__file__, str(code)], stdin=theirs.fileno()
            )
        self._sending = threading.Lock()
        self._forked: queue.Queue[ForkedProcess] = queue.Queue()
        self._running: dict[int, ForkedProcess] = {}
        threading.Thread(target=self._listen, name="function-server", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._server.poll() is None

    def fork(self, script: str, folder: str, environment: Mapping[str, str]) -> ForkedProcess:
        """A process that runs `script` in `folder` with exactly this environment.

        Raises:
            OSError: the server has ended.
        """
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = (os.pipe() for _ in range(3))
        process = ForkedProcess(
            self, (os.fdopen(to_stdin, "w", buffering=1), os.fdopen(from_stdout), os.fdopen(from_stderr))
        )
        request = {"script": script, "folder": folder, "environment": dict(environment)}
        line = json.dumps(request).encode() + b"\n"
        try:
            with self._sending:
                self._forked.put(process)
                sent = socket.send_fds(self._socket, [line], [stdin, stdout, stderr])
                self._socket.sendall(line[sent:])
        finally:
            for end in (stdin, stdout, stderr):
                os.close(end)
        process.wait_for_start()
        return process

    def signal(self, process: int, number: signal.Signals) -> None:
        """Send a signal to a process that was forked here, if it still runs."""
        with self._sending:
            self._socket.sendall(json.dumps({"signal": int(number), "process": process}).encode() + b"\n")

    def end(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.wait()

    def _listen(self) -> None:
        # A server that is killed with requests unread resets the connection.
        with suppress(ConnectionResetError), self._socket.makefile("r") as answers:
            for line in answers:
                answer = json.loads(line)
                if "started" in answer:
                    # In the order of the requests.
                    process = self._running[answer["started"]] = self._forked.get()
                    process.started(answer["started"])
                else:
                    self._running.pop(answer["ended"]).ended(answer["code"])
        # The server has ended. Its processes end when MiniStack, which takes them for dead, lets go of their streams.
        while not self._forked.empty():
            self._forked.get().ended(-int(signal.SIGKILL))
        for process in self._running.values():
            process.ended(-int(signal.SIGKILL))


class FunctionProcesses:
    """Starts the processes of functions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[Path] = set()
        self._servers: dict[Path, ForkServer] = {}

    def subprocess_module(self) -> SimpleNamespace:
        """Stands in for the module `subprocess` where MiniStack starts functions."""
        return SimpleNamespace(**{**vars(subprocess), "Popen": self.start})

    def start(self, command: Sequence[str], **options: Any) -> ForkedProcess | subprocess.Popen[str]:
        """Start `command`; `options` are those of `subprocess.Popen`, and name the code's folder as `cwd`."""
        in_python = command[0] == sys.executable and _FORKS
        server = self._server(Path(options["cwd"]).resolve()) if in_python else None
        if server is None:
            return subprocess.Popen(command, **options)
        return server.fork(command[1], options["cwd"], options["env"])

    def end(self) -> None:
        """End the servers. Their processes end with the streams from this service."""
        with self._lock:
            for server in self._servers.values():
                server.end()
            self._servers.clear()

    def _server(self, code: Path) -> ForkServer | None:
        """The server for a code folder; None for its first process, which is often the only one."""
        with self._lock:
            if code not in self._started:
                self._started.add(code)
                return None
            if code not in self._servers or not self._servers[code].alive:
                self._servers[code] = ForkServer(code)
            return self._servers[code]
