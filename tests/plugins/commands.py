"""The program `muster` for tests of what it prints: imported once for each worker."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_server import MUSTER, CommandServer


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    """Runs commands of `muster`, each in a process of its own."""
    with CommandServer(Path(sys.executable), MUSTER, tmp_path_factory.mktemp("commands")) as server:
        yield server
