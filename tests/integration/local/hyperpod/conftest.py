"""An embedded HyperPod cluster for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.hyperpod.cluster import PodCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodCluster]:
    """A cluster of three nodes; tests keep apart by the names of their jobs."""
    made = PodCluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()
