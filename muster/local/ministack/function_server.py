"""The fork server of functions that share their code: a process that has imported what takes long, and forks.

A function's process that is forked starts in a fifth of the time. The server imports packages of others, and Muster's
contract, which reads nothing and keeps nothing. Whatever else a function imports runs anew in each process, as in each
execution environment on AWS.

Run as a script, with a Unix socket as its standard input: python -P function_server.py CODE_FOLDER
Each message is a JSON object on a line. From the service: {"script", "folder", "environment"}, which comes with the
three descriptors of the new process's standard streams; {"signal", "process"}. To the service: {"started": pid}, then
{"ended": pid, "code"}. The server ends when the service closes the socket.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import time

# What the embedded cloud puts before every function (botocore), and what functions in Python import most.
PRELOADED = ("botocore.handlers", "boto3", "pydantic", "aws_lambda_powertools")
PURE = "muster.contract"
"""A package of which all modules are imported: the same in every process, whatever its environment."""


class Server:
    """The processes that were forked, and the socket to the service."""

    def __init__(self, service: socket.socket) -> None:
        self._service = service
        self._received = b""
        self._descriptors: list[int] = []
        self._running: set[int] = set()
        self._wake_read, wake_write = os.pipe()
        for end in (self._wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> dict[str, object] | None:
        """Serve until the service ends (None); in each forked process this returns the request for that process."""
        while True:
            readable, _, _ = select.select([self._service.fileno(), self._wake_read], [], [])
            if self._wake_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._service.fileno() in readable:
                chunk, descriptors, _, _ = socket.recv_fds(self._service, 1 << 16, 3)
                if not chunk:
                    return None
                self._descriptors += descriptors
                *lines, self._received = (self._received + chunk).split(b"\n")
                for line in lines:
                    if (forked := self._obey(json.loads(line))) is not None:
                        return forked

    def _obey(self, request: dict[str, object]) -> dict[str, object] | None:
        if "signal" in request:
            process = request["process"]
            if process in self._running:
                os.kill(int(str(process)), int(str(request["signal"])))
            return None
        streams, self._descriptors = self._descriptors, []
        process = os.fork()
        if process == 0:
            self._become(streams)
            return request
        for descriptor in streams:
            os.close(descriptor)
        self._running.add(process)
        self._answer({"started": process})
        return None

    def _become(self, streams: list[int]) -> None:
        """In a forked process: keep nothing of the server, and take the standard streams."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._service.detach()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, max(streams) + 1)

    def _reap(self) -> None:
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            self._running.discard(process)
            self._answer({"ended": process, "code": os.waitstatus_to_exitcode(status)})

    def _answer(self, answer: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self._service.sendall(json.dumps(answer).encode() + b"\n")


def preload() -> None:
    """Import what is the same in every process. What the code does not have is left out."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        package = importlib.import_module(PURE)
        for module in pkgutil.walk_packages(package.__path__, f"{PURE}."):
            importlib.import_module(module.name)
        _build_models()


def _build_models() -> None:
    """Build the validators of all models, which each process would otherwise do at their first use."""
    from pydantic import BaseModel  # noqa: PLC0415 - the code may have none

    models = BaseModel.__subclasses__()
    for model in models:
        models += model.__subclasses__()
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)


def main() -> None:
    """Preload, then serve; a forked process runs its script here."""
    sys.path.insert(0, sys.argv[1])
    preload()
    # Each process has its own path, by which it finds the same files.
    del sys.path[0]
    gc.freeze()  # what is never collected stays shared with the forked processes
    request = Server(socket.socket(fileno=0)).run()
    if request is None:
        os._exit(0)
    environment = request["environment"]
    assert isinstance(environment, dict)  # noqa: S101 - as the service sends it
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    # What `ps` shows has room for the end of the function's name, where names differ.
    with open("/proc/self/comm", "w") as shown:  # noqa: PTH123 - without pathlib
        shown.write(str(os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""))[-15:])
    os.chdir(str(request["folder"]))
    sys.argv[:] = [str(request["script"])]
    runpy.run_path(str(request["script"]), run_name="__main__")


if __name__ == "__main__":
    main()
