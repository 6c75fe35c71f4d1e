"""A group of replica processes that run rounds together, on command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from bench.rounds.server import Server
from bench.usage import available_bytes

BUCKET = "bench"
_SMALL_BYTES = 65_536
# The gradient, the mean and the contribution in each process, and the contributions and the mean at the server.
_MEMORY_PER_BYTE = 5.5
_END_SECONDS = 60.0  # limit for the end of a replica that the benchmark kills


@dataclass(frozen=True)
class RoundCost:
    """One round of a group: wall time from the command to the last answer, and what each replica reports."""

    seconds: float
    answers: dict[int, dict[str, Any]]


@dataclass
class Group:
    """Running replicas."""

    server: Server
    prefix: str
    processes: dict[int, subprocess.Popen[str]]
    rounds: int = 0

    def prepare(self, scheme: str) -> None:
        """Let each replica prepare the scheme for its first round."""
        self._command({"scheme": scheme})

    def round(
        self,
        scheme: str,
        doomed: dict[int, dict[str, Any]] | None = None,
        *,
        digest: bool = False,
        profile: bool = False,
    ) -> RoundCost:
        """One round of all living replicas. `doomed` ranks get these additions to their command, and die in it."""
        self.rounds += 1
        command = {"scheme": scheme, "round": self.rounds, "digest": digest, "profile": profile}
        return self._command(command, doomed or {})

    def clear(self) -> None:
        """Delete the objects of past rounds, except small ones and those that are read again."""
        for folder in ("contributions", "reduced", "all-gather", "scatter-reduce", "bare/moved"):
            self.server.delete(f"{BUCKET}/{self.prefix}{folder}/", above_bytes=_SMALL_BYTES)

    def _command(self, command: dict[str, Any], doomed: dict[int, dict[str, Any]] | None = None) -> RoundCost:
        doomed = doomed or {}
        began = time.perf_counter()
        for rank, process in self.processes.items():
            stdin = _open(process.stdin)
            stdin.write(json.dumps(command | doomed.get(rank, {})) + "\n")
            stdin.flush()
        answers = {
            rank: json.loads(_open(process.stdout).readline() or _failed(rank))
            for rank, process in self.processes.items()
            if rank not in doomed
        }
        seconds = time.perf_counter() - began
        for rank in doomed:
            self.processes.pop(rank).wait(timeout=_END_SECONDS)
        return RoundCost(seconds, answers)


@contextmanager
def running_group(
    server: Server, replicas: int, count: int, *, codec: str = "fp32", grace_seconds: float = 30.0
) -> Iterator[Group]:
    """`replicas` processes with a float32 vector of `count` elements each, at a rendezvous of their own."""
    prefix = f"rendezvous/{uuid.uuid4().hex}/"
    options = [str(replicas), str(count), codec, str(grace_seconds), f"s3://{BUCKET}/{prefix}"]
    processes = {
        rank: subprocess.Popen(
            [sys.executable, "-m", "bench.rounds.replica", str(rank), *options],
            env=client_environment(server, f"rank{rank}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(replicas)
    }
    try:
        yield Group(server, prefix, dict(processes))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                _open(stream).close()


def fits(replicas: int, mib: int) -> bool:
    """Whether a group that averages so much has room in this machine's memory."""
    return replicas * mib * 2**20 * _MEMORY_PER_BYTE <= available_bytes()


def client_environment(server: Server, name: str) -> dict[str, str]:
    """The environment in which a process reaches the server as `name`, without this shell's AWS settings."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return inherited | {
        "AWS_ENDPOINT_URL_S3": server.url,
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
    }


def _open(stream: TextIO | Any) -> TextIO:
    assert stream is not None
    return stream


def _failed(rank: int) -> str:
    message = f"replica {rank} ended in the middle of a round"
    raise RuntimeError(message)
