"""The embedded cloud for tests: one for the whole session, and a workshop for training jobs on it."""

from collections.abc import Iterator
from typing import Any

import pytest

from muster.local import LocalCloud
from tests.support.workshop import Workshop, fast_settings


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """An embedded cloud for the whole session; tests keep apart by names."""
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), fast_settings()) as running:
        yield running


@pytest.fixture(scope="session")
def workshop(cloud: LocalCloud) -> Workshop:
    """Training jobs on the session's cloud."""
    return Workshop(cloud)


@pytest.fixture
def faults(cloud: LocalCloud) -> Iterator[Any]:
    """The fault book of the session's cloud, empty again afterwards."""
    yield cloud.faults
    cloud.faults.clear()
