"""The control plane's way into a cluster, over TLS: tokens, jobs, faults, errors."""

import itertools
from typing import Any

import botocore.session
import pytest

from muster.contract.names import JobName
from muster.contract.training.clusters import Cluster, Clusters
from muster.control.aws.clients import Clients
from muster.control.jobs import LaunchRefusedError
from muster.control.runtime.clock import TimeBudget
from muster.local import LocalCloud
from muster.options.hyperpod.contract.object_identity import job_labels
from muster.options.hyperpod.control.cluster_apis import ClusterApis
from muster.options.hyperpod.control.cluster_clients import ClusterClients
from muster.options.hyperpod.control.cluster_errors import ClusterGoneError, ClusterUnavailableError
from muster.options.hyperpod.control.cluster_jobs import ClusterJobs
from tests.plugins.cluster_stack import CLUSTER
from tests.support.waiting import wait_until

NAMESPACE = CLUSTER.namespace
STACK = Cluster(name=CLUSTER.name, eks_cluster=CLUSTER.eks_cluster, namespaces=(NAMESPACE,))
PREFIX = "client"
_numbers = itertools.count(1)


class RootClients(Clients):
    """Clients of the embedded cloud as root."""

    def __init__(self, cloud: LocalCloud) -> None:
        environment, session = cloud.environment(), botocore.session.get_session()
        session.set_credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
        session.set_config_variable("region", environment["AWS_DEFAULT_REGION"])
        vars(self).update(eks=cloud.client("eks"), session=session)


@pytest.fixture
def apis(cluster_cloud: LocalCloud) -> ClusterApis:
    return ClusterApis(ClusterClients(RootClients(cluster_cloud)), Clusters(clusters=(STACK,)))


@pytest.fixture
def jobs(apis: ClusterApis) -> ClusterJobs:
    found = ClusterJobs(apis, STACK.name, NAMESPACE)
    found.patience = TimeBudget.of(60)
    return found


def new_name() -> str:
    """The name of a job of a run of its own."""
    return f"{PREFIX}-run{next(_numbers)}-r0-a1"


def document(name: str, **spec: Any) -> dict[str, Any]:
    """A job whose one pod cannot be scheduled: nothing of it runs."""
    parts = JobName.parse(name, PREFIX)
    assert parts is not None
    container = {"name": "c", "image": "muster-local/python", "resources": {"requests": {"cpu": "900"}}}
    pods = {"name": "pod", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    labels = job_labels(PREFIX, parts.run, parts.rank, parts.attempt)
    metadata = {"name": name, "labels": labels, "annotations": {"muster/plan": "d" * 64}}
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": metadata,
        "spec": {"replicaSpecs": [pods], "runPolicy": {"ttlSecondsAfterFinished": 3600}, **spec},
    }


def test_a_job_is_created_found_listed_deleted_and_refused(jobs: ClusterJobs) -> None:
    name = new_name()
    run = name.split("-")[1]
    created = jobs.create(document(name))
    assert created.is_new
    assert created.job is not None
    assert not jobs.create(document(name)).is_new
    found = jobs.find(name)
    assert found is not None
    assert (found.status, found.end) == ("InProgress", None)
    assert jobs.tags(found.arn)["muster:run"] == run
    assert [str(job.name) for job in jobs.under_names_of(PREFIX, run)] == [name]
    assert list(jobs.under_names_of(PREFIX, f"{run}0")) == []
    assert [str(job.name) for job in jobs.active(PREFIX, TimeBudget.of(60))] == [name]
    jobs.stop(name)
    wait_until("the job is gone", lambda: jobs.find(name) is None)
    jobs.stop(name)
    with pytest.raises(LaunchRefusedError) as refused:
        jobs.create(document(name, nprocPerNode=7, unknownField=True))
    assert refused.value.failure_class == "invalid-request"


def test_a_cluster_that_does_not_exist_is_named(cluster_cloud: LocalCloud) -> None:
    other = Cluster(name="other", eks_cluster="no-such-cluster", namespaces=("x",))
    apis = ClusterApis(ClusterClients(RootClients(cluster_cloud)), Clusters(clusters=(other,)))
    with pytest.raises(ClusterGoneError, match=r"no-such-cluster .* other"):
        apis.api("other").get("/version", TimeBudget.of(1))


def test_another_authority_is_not_trusted_and_no_error_shows_the_token(
    cluster_cloud: LocalCloud, apis: ClusterApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str] = []
    make = apis.clients.token
    monkeypatch.setattr(apis.clients, "token", lambda name: tokens.append(make(name)) or tokens[-1])
    open_transport = apis.clients.transport
    authority = cluster_cloud.state.ca_file.read_text()
    monkeypatch.setattr(apis.clients, "transport", lambda endpoint, _: open_transport(endpoint, authority))
    with pytest.raises(ClusterUnavailableError, match="certificate verify failed") as error:
        apis.api(STACK.name).get("/version", TimeBudget.of(0))
    assert tokens
    assert all(token not in str(error.value) for token in tokens)
