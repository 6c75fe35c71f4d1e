"""One process from which the processes of replicas are forked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_server import CommandServer
from tests.support.forked_replicas import ForkedRun, replica_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    with replica_server(tmp_path_factory.mktemp("server"), "tests.support.jobs.trainers") as started:
        yield started


@pytest.fixture
def containers(server: CommandServer, tmp_path: Path) -> Iterator[ForkedRun]:
    run = ForkedRun(server, tmp_path)
    yield run
    run.end()
