"""A pod as a process, with the embedded agent, and an operator that calls its agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK, PodChannel, PodWork
from tests.support.s3_server import S3Server
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
JOB = "muster-digits-r0-a1"
SECONDS = 60.0


def address(number: int) -> str:
    """A loopback address that no other test of this process group uses."""
    return f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}.{number + 1}"


@dataclass
class PodRun:
    """A pod that runs `program`."""

    __test__ = False

    place: Path
    s3: S3Server
    program: Sequence[str]
    number: int = 0
    instances: int = 1
    channels: tuple[PodChannel, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    job: str = JOB
    with_agent: bool = True
    process: subprocess.Popen[bytes] | None = None

    @property
    def base(self) -> Path:
        return self.place / f"ml-{self.number}"

    @property
    def address(self) -> str:
        return address(self.number)

    @property
    def work(self) -> PodWork:
        return PodWork(
            job=self.job,
            program=tuple(self.program),
            channels=self.channels,
            hyper_parameters={"lr": "0.1"},
            checkpoints_uri="s3://bucket/checkpoints/digits/r0/",
            output_uri="s3://bucket/output/digits/",
            notices_uri="s3://bucket/notices/digits/",
            instances=self.instances,
        )

    @property
    def environment(self) -> dict[str, str]:
        bin_ = self.place / "bin"
        bin_.mkdir(exist_ok=True)
        if self.with_agent:
            script = bin_ / "hyperpodrun"
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m muster.options.hyperpod.local.agent "$@"\n')
            script.chmod(0o755)
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG") if name in os.environ}
        return {
            **kept,
            "PATH": f"{bin_}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            **self.s3.environment,
            "SAGEMAKER_BASE_DIR": str(self.base),
            "POD_IP": self.address,
            "POD_NAME": f"{self.job}-pod-{self.number}",
            ENV_POD_WORK: self.work.to_json().decode(),
            **self.variables,
        }

    def begin(
        self, command: Sequence[str] = (sys.executable, "-P", "-m", "muster.options.hyperpod.replica.first_process")
    ) -> PodRun:
        """Start the container."""
        self.process = subprocess.Popen(
            list(command),
            env=self.environment,
            stdout=(self.place / f"log-{self.number}").open("ab"),
            stderr=subprocess.STDOUT,
            cwd=self.place,
            start_new_session=True,
        )
        return self

    @property
    def log(self) -> str:
        return (self.place / f"log-{self.number}").read_text()

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the agent; None where it does not answer."""
        data = None if path == "/status" else json.dumps(body or {}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}:8080{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the URL is written above
                text = answer.read()
        except (urllib.error.URLError, OSError):
            return None
        return json.loads(text) if text else {}

    @property
    def state(self) -> str:
        found = self.call("/status")
        return "" if found is None else str(found["status"])

    def is_in(self, *states: str) -> str:
        """Wait until the agent is in one of `states`."""

        def look() -> str | None:
            found = self.state
            return found if found in states else None

        try:
            return wait_until(f"the agent is {' or '.join(states)}", look)
        except AssertionError as error:
            message = f"{error}; it is {self.state!r}, and has written:\n{self.log[-3000:]}"
            raise AssertionError(message) from None

    def runs(self) -> None:
        """Wait until the program has said that it runs, by a file in the pod's folder."""
        try:
            wait_until("the program runs", (self.base / "ready").exists)
        except AssertionError as error:
            message = f"{error}; the agent is {self.state!r}, and has written:\n{self.log[-3000:]}"
            raise AssertionError(message) from None

    def start(self, *, pods: int = 1, rank: int = 0, faults: int = 0, master: str | None = None) -> None:
        """What the operator does once all agents are ready."""
        self.is_in("ready")
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        body = {
            "rank": rank,
            "nnodes": pods,
            "faultCount": faults,
            "master_addr": master or self.address,
            "master_port": port,
        }
        assert self.call("/start", body) is not None

    def end(self) -> int:
        """The exit code of the container, once it has ended."""
        assert self.process is not None
        return self.process.wait(SECONDS)

    def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def notices(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the run's notices of a kind, oldest first."""
        sent = [request.key for request in self.s3.requests if request.key.startswith(f"notices/digits/{kind}-")]
        return [json.loads(self.s3.body(key)) for key in dict.fromkeys(sent) if key in self.s3.objects]

    def kill(self) -> None:
        """SIGKILL for the container and all that it has started: nothing of it is left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    mine = f"SAGEMAKER_BASE_DIR={self.base}".encode() in (entry / "environ").read_bytes().split(b"\0")
                    if mine:
                        os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    continue
