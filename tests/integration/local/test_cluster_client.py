"""The control plane's way into a cluster, over TLS: tokens, jobs, retries, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest

from muster.contract.aws.job_status import JobStatus
from muster.contract.hyperpod.clusters import Cluster, Clusters
from muster.contract.hyperpod.identity import job_labels
from muster.contract.names import JobName
from muster.control.aws.clients import Clients
from muster.control.jobs import LaunchRefusedError
from muster.control.kubernetes.cluster_apis import ClusterApis
from muster.control.kubernetes.cluster_errors import ClusterGoneError, ClusterUnavailableError
from muster.control.kubernetes.cluster_jobs import ClusterJobs
from muster.control.runtime.time_budget import TimeBudget
from muster.local import LocalCloud, Settings
from muster.local.faults import KubernetesError
from muster.local.hyperpod.cluster_settings import ClusterSettings
from tests.support.waiting import wait_until

SETTINGS = ClusterSettings(nodes=1)
NAMESPACE = SETTINGS.namespaces[0]
STACK = Cluster(name=SETTINGS.name, eks_cluster=SETTINGS.eks_cluster, namespaces=(NAMESPACE,))


class RootClients(Clients):
    """Clients of the embedded cloud as root."""

    def __init__(self, cloud: LocalCloud) -> None:
        environment, session = cloud.environment(), botocore.session.get_session()
        session.set_credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
        session.set_config_variable("region", environment["AWS_DEFAULT_REGION"])
        vars(self).update(eks=cloud.client("eks"), _session=session)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    settings = Settings(port=0, hyperpod=SETTINGS, end_with_parent=True)
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


@pytest.fixture
def apis(cloud: LocalCloud) -> ClusterApis:
    return ClusterApis(RootClients(cloud), Clusters(clusters=(STACK,)))


@pytest.fixture
def jobs(apis: ClusterApis) -> ClusterJobs:
    found = ClusterJobs(apis, STACK.name, NAMESPACE)
    found.patience = TimeBudget.of(60)
    return found


def document(name: str, **spec: Any) -> dict[str, Any]:
    """A job whose one pod cannot be scheduled: nothing of it runs."""
    parts = JobName.parse(name, "muster")
    assert parts is not None
    container = {"name": "c", "image": "muster-local/python", "resources": {"requests": {"cpu": "900"}}}
    pods = {"name": "pod", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    labels = job_labels("muster", parts.run, parts.rank, parts.attempt)
    metadata = {"name": name, "labels": labels, "annotations": {"muster/plan": "d" * 64}}
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": metadata,
        "spec": {"replicaSpecs": [pods], "runPolicy": {"ttlSecondsAfterFinished": 3600}, **spec},
    }


def test_a_job_is_created_found_listed_and_deleted(jobs: ClusterJobs) -> None:
    name = "muster-one-r0-a1"
    created = jobs.create(document(name))
    assert created.is_new
    assert created.job is not None
    assert not jobs.create(document(name)).is_new
    found = jobs.find(name)
    assert found is not None
    assert (found.status, found.end) == ("InProgress", None)
    assert jobs.tags(found.arn)["muster:run"] == "one"
    assert [str(job.name) for job in jobs.under_names_of("muster", "one", JobStatus.IN_PROGRESS)] == [name]
    assert list(jobs.under_names_of("muster", "two", JobStatus.IN_PROGRESS)) == []
    assert [str(job.name) for job in jobs.active("muster")] == [name]
    jobs.stop(name)
    wait_until("the job is gone", lambda: jobs.find(name) is None, seconds=20)
    jobs.stop(name)
    gone = jobs.vanished(name)
    assert gone is not None
    assert (gone.status, gone.secondary) == ("Stopped", "Deleted")


def test_a_document_that_the_api_refuses_is_a_refused_launch(jobs: ClusterJobs) -> None:
    with pytest.raises(LaunchRefusedError) as refused:
        jobs.create(document("muster-bad-r0-a1", nprocPerNode=7, unknownField=True))
    assert refused.value.failure_class == "invalid-request"
    assert "namespace" in refused.value.reason
    assert jobs.find("muster-bad-r0-a1") is None


@pytest.mark.parametrize("code", [401, 429, 500, 503])
def test_a_call_that_fails_in_passing_is_made_again(cloud: LocalCloud, jobs: ClusterJobs, code: int) -> None:
    cloud.faults.add(KubernetesError(code=code, count=1))
    assert jobs.find("muster-none-r0-a1") is None


def test_a_creation_without_an_answer_is_found_by_its_name(cloud: LocalCloud, jobs: ClusterJobs) -> None:
    name = "muster-lost-r0-a1"
    cloud.faults.add(KubernetesError(code=503, after_effect=True, count=1))
    assert not jobs.create(document(name)).is_new
    assert jobs.find(name) is not None
    jobs.stop(name)


def test_a_cluster_that_does_not_exist_is_named(cloud: LocalCloud) -> None:
    other = Cluster(name="other", eks_cluster="no-such-cluster", namespaces=("x",))
    apis = ClusterApis(RootClients(cloud), Clusters(clusters=(other,)))
    with pytest.raises(ClusterGoneError, match="EKS cluster no-such-cluster of the HyperPod cluster other"):
        apis.api("other").get("/version", TimeBudget.of(1))


def test_another_authority_is_not_trusted_and_no_error_shows_the_token(
    cloud: LocalCloud, apis: ClusterApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str] = []
    make = apis.clients.cluster_token
    monkeypatch.setattr(apis.clients, "cluster_token", lambda name: tokens.append(make(name)) or tokens[-1])
    open_transport = apis.clients.cluster_transport
    authority = cloud.state.ca_file.read_text()
    monkeypatch.setattr(apis.clients, "cluster_transport", lambda endpoint, _: open_transport(endpoint, authority))
    with pytest.raises(ClusterUnavailableError, match="certificate verify failed") as error:
        apis.api(STACK.name).get("/version", TimeBudget.of(0))
    assert tokens
    assert all(token not in str(error.value) for token in tokens)
