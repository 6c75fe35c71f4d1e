"""TorchX's own command line, turned to the deployed stack."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.source_patch import ROOT

ENVIRONMENTS = ROOT / "build" / "torchx"
"""A virtual environment for each version, by its name: stable and nightly."""
IMAGE = "muster-local/python:latest"


@contextmanager
def torchx_server(version: str, place: Path) -> Iterator[CommandServer]:
    """A server of `torchx` in one version, with its files in `place`."""
    modules = ("torchx.cli.main", "muster.options.torchx.client.scheduler", "muster.client", "boto3")
    with CommandServer(ENVIRONMENTS / version / "bin" / "python", modules, place) as server:
        yield server


class TorchX:
    """One version, installed beside Muster by `make test`."""

    def __init__(self, server: CommandServer, version: str, stack: Deployed) -> None:
        self._server = server
        self._folder = ENVIRONMENTS / version / "bin"
        self._environment = stack.cloud.environment(os.environ | {"NO_COLOR": "1"})
        self._place = stack.gates

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """How `torchx ARGUMENTS` ends; `variables` are added to its environment."""
        if arguments[0] == "run" and "--workspace" not in arguments:
            arguments = ("run", "--workspace", "", *arguments[1:])  # the code of most tests is in the image
        return self._server.run(arguments, self._place, self._environment | variables)

    def process(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        """What a program of this version's environment prints, as a process of its own."""
        answer = subprocess.run(
            [str(self._folder / program), *arguments],
            env=self._environment,
            cwd=folder or self._place,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def run(self, *arguments: str) -> str:
        """Start an application; its handle."""
        answer = self("run", "-s", "muster", *arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.split()[0]
