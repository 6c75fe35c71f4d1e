"""One process that has imported PyTorch, from which the processes of replicas are forked."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_server import CommandServer
from tests.support.forked_replicas import ForkedRun, replica_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    # What an optimizer imports, and what the trainers do.
    modules = ("torch._dynamo", "tests.support.jobs.sharded_trainers", "examples.char_gpt.trainer")
    with replica_server(tmp_path_factory.mktemp("server"), *modules, has_torch=True) as started:
        yield started


@pytest.fixture
def forked(server: CommandServer, tmp_path: Path) -> Iterator[Callable[[str], ForkedRun]]:
    """Makes runs, each in a folder with its name."""
    runs: list[ForkedRun] = []

    def make(name: str) -> ForkedRun:
        runs.append(ForkedRun(server, tmp_path / name, has_torch=True))
        return runs[-1]

    yield make
    for run in runs:
        run.end()


@pytest.fixture
def containers(forked: Callable[[str], ForkedRun]) -> ForkedRun:
    return forked("run")
