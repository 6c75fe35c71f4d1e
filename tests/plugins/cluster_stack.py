"""A HyperPod cluster for tests: in one embedded cloud for the session, with a stack that is deployed once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.deployed_stack import settings_with
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.stack_settings import Platform
from muster.local import LocalCloud
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from tests.support.hyperpod.cluster import PROGRAMS
from tests.support.hyperpod.root_api import RootApi
from tests.support.waiting import wait_until
from tests.support.workshop import fast_settings

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ClusterSettings(nodes=3, node_type="ml.m5.xlarge", node_seconds=0.2, replace_seconds=0.5)


class ClusterStack:
    """A stack whose runs may use the cluster. One that a test has deleted is deployed again for the next test."""

    def __init__(self, cloud: LocalCloud, folder: Path) -> None:
        self.cloud = cloud
        self.outputs: dict[str, str] = {}
        self._folder = folder

    def deploy(self) -> None:
        """Deploy the stack unless it is there."""
        if not self.outputs:
            self.outputs = deploy(
                self.cloud.environment(),
                target=Platform.LOCAL,
                settings=settings_with(CLUSTER),
                outputs=self._folder / "outputs.json",
                log=self._folder / "cdk.log",
            )

    def delete(self) -> None:
        """Delete the stack, and wait for the end of it."""
        formation, self.outputs = self.cloud.client("cloudformation"), {}
        formation.delete_stack(StackName="Muster")

        def is_deleted() -> bool:
            found = formation.list_stacks()["StackSummaries"]
            return all(one["StackStatus"] == "DELETE_COMPLETE" for one in found if one["StackName"] == "Muster")

        wait_until("the end of the deletion", is_deleted)


@pytest.fixture(scope="session")
def cluster_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """An embedded cloud with a HyperPod cluster for the whole session; tests keep apart by names."""
    settings = fast_settings(services={"hyperpod": CLUSTER}, code=(PROGRAMS, ROOT))
    with LocalCloud.start(tmp_path_factory.mktemp("cluster_cloud"), settings) as running:
        yield running


@pytest.fixture
def root_api(cluster_cloud: LocalCloud) -> RootApi:
    """The cluster's API as root."""
    return RootApi(cluster_cloud, CLUSTER)


@pytest.fixture(scope="session")
def deployed_cluster_stack(cluster_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> ClusterStack:
    """The stack of the session, not deployed yet."""
    return ClusterStack(cluster_cloud, tmp_path_factory.mktemp("cluster_stack"))


@pytest.fixture
def cluster_stack(deployed_cluster_stack: ClusterStack) -> ClusterStack:
    """A deployed stack with a cluster."""
    deployed_cluster_stack.deploy()
    return deployed_cluster_stack
