"""Scenarios on an embedded cluster: each returns what it has seen, as JSON. Nothing is judged here.

build/kubernetes/bin/python -m tests.release.oracle.kubernetes_side.scenarios < CLUSTER.json
"""

import base64
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from kubernetes import client, watch


@dataclass(frozen=True)
class Cluster:
    """Where the API is, and the key of who calls it: id and secret."""

    name: str
    region: str
    endpoint: str
    ca_file: str
    namespace: str
    key: tuple[str, str]

    def token(self) -> str:
        """A token, as `aws eks get-token` makes it."""
        url = f"https://sts.{self.region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
        request = AWSRequest("GET", url, headers={"x-k8s-aws-id": self.name})
        SigV4QueryAuth(Credentials(*self.key), "sts", self.region, 60).add_auth(request)
        return "k8s-aws-v1." + base64.urlsafe_b64encode(str(request.url).encode()).decode().rstrip("=")

    def api(self) -> client.ApiClient:
        """A client."""
        configuration = client.Configuration()
        configuration.host = self.endpoint
        configuration.ssl_ca_cert = self.ca_file
        configuration.api_key = {"authorization": f"Bearer {self.token()}"}
        return client.ApiClient(configuration)


def refusal(error: client.ApiException) -> dict[str, Any]:
    """What the server has refused, as JSON."""
    document = json.loads(error.body) if error.body else {}
    return {"status": error.status, **{name: document.get(name) for name in ("kind", "reason", "message", "details")}}


GROUP, VERSION, PLURAL = "sagemaker.amazonaws.com", "v1", "hyperpodpytorchjobs"
SCENARIOS: list[Callable[[Cluster], Any]] = []


def scenario(function: Callable[[Cluster], Any]) -> Callable[[Cluster], Any]:
    SCENARIOS.append(function)
    return function


def job(name: str, **spec: Any) -> dict[str, Any]:
    """A job that waits: it is suspended."""
    container = {"name": "pytorch-job-container", "image": "muster-local/python:1", "command": ["python", "-V"]}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "HyperPodPyTorchJob",
        "metadata": {"name": name, "labels": {"oracle": "yes"}},
        "spec": {
            "replicaSpecs": [{"name": "pod", "replicas": 1, "template": {"spec": {"containers": [container]}}}],
            "runPolicy": {"suspend": True},
            **spec,
        },
    }


def pod(name: str, *command: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "muster-local/python:1", "command": list(command)}],
        },
    }


class Jobs:
    """The jobs of the cluster's namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._place = (GROUP, VERSION, cluster.namespace, PLURAL)
        self._api = client.CustomObjectsApi(cluster.api())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._api, f"{name}_namespaced_custom_object")
        return lambda *arguments, **options: call(*self._place, *arguments, **options)

    def status(self, name: str, body: Any) -> Any:
        return self._api.patch_namespaced_custom_object_status(*self._place, name, body)


def replace(jobs: Jobs, name: str, **spec: Any) -> Any:
    """Replace a job, of which the operator may write the status at the same time."""
    while True:
        found = jobs.get(name)
        try:
            return jobs.replace(name, {**found, "spec": {**found["spec"], **spec}})
        except client.ApiException as error:
            if error.status != 409:
                raise


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """How a call was refused; what it answered where it was not."""
    try:
        return {"answer": str(call(*arguments, **options))[:200]}
    except client.ApiException as error:
        return refusal(error)


@scenario
def discovery(cluster: Cluster) -> Any:
    api = cluster.api()
    crds = client.ApiextensionsV1Api(api)
    return {
        "version": client.VersionApi(api).get_code().minor,
        "core": [row.name for row in client.CoreV1Api(api).get_api_resources().resources],
        "groups": [group.name for group in client.ApisApi(api).get_api_versions().groups],
        "jobs": [row.name for row in client.CustomObjectsApi(api).get_api_resources(GROUP, VERSION).resources],
        "definition": crds.read_custom_resource_definition(f"{PLURAL}.{GROUP}").spec.names.kind,
    }


@scenario
def lifecycle(cluster: Cluster) -> Any:
    jobs = Jobs(cluster)
    created = jobs.create(job("lifecycle"))
    patched = jobs.patch("lifecycle", {"spec": {"nprocPerNode": "2"}})
    replaced = replace(jobs, "lifecycle", nprocPerNode="4")
    operations = [
        {"op": "test", "path": "/spec/nprocPerNode", "value": "4"},
        {"op": "add", "path": "/metadata/labels/further", "value": "yes"},
    ]
    operated = jobs.patch("lifecycle", operations, _content_type="application/json-patch+json")
    found = jobs.list(label_selector="further=yes,oracle in (yes)")["items"]
    jobs.status("lifecycle", {"status": {"restartCount": 1}})
    read = jobs.get("lifecycle")
    deleted = jobs.delete("lifecycle")
    return {
        "created": created["spec"]["nprocPerNode"],
        "uid": created["metadata"]["uid"] == read["metadata"]["uid"] == deleted["details"]["uid"],
        "patched": patched["spec"]["nprocPerNode"],
        "replaced": replaced["spec"]["nprocPerNode"],
        "operated": operated["metadata"]["labels"],
        "found": [item["metadata"]["name"] for item in found],
        "restarts": read["status"]["restartCount"],
        "deleted": deleted["status"],
        "gone": refused(jobs.get, "lifecycle")["reason"],
    }


@scenario
def watching(cluster: Cluster) -> Any:
    jobs, api = Jobs(cluster), client.CustomObjectsApi(cluster.api())
    place = (GROUP, VERSION, cluster.namespace, PLURAL)
    version = jobs.list()["metadata"]["resourceVersion"]
    jobs.create(job("watching"))
    jobs.patch("watching", {"spec": {"nprocPerNode": "2"}})
    jobs.delete("watching")
    seen = [
        (event["type"], event["object"]["metadata"]["name"])
        for event in watch.Watch().stream(
            api.list_namespaced_custom_object, *place, resource_version=version, timeout_seconds=1
        )
        if event["object"]["metadata"]["name"] == "watching"
    ]
    old = {"resource_version": "5"}
    return {
        "seen": seen,
        "forgotten": refused(lambda: list(watch.Watch().stream(api.list_namespaced_custom_object, *place, **old))),
    }


@scenario
def pods(cluster: Cluster) -> Any:
    core = client.CoreV1Api(cluster.api())
    place = cluster.namespace
    code = "import time\nfor n in range(3):\n    print('line', n, flush=True)\n    time.sleep(0.2)"
    created = core.create_namespaced_pod(place, pod("prints", "python", "-c", code))
    for event in watch.Watch().stream(core.list_namespaced_pod, place, label_selector="app=prints", timeout_seconds=60):
        if event["object"].status.phase in ("Running", "Succeeded"):
            break
    followed = core.read_namespaced_pod_log("prints", place, follow=True)
    for event in watch.Watch().stream(core.list_namespaced_pod, place, label_selector="app=prints", timeout_seconds=60):
        if event["object"].status.phase == "Succeeded":
            break
    succeeded = core.list_namespaced_pod(place, field_selector="status.phase=Succeeded,metadata.name=prints").items
    answers = {
        "created": created.status.phase,
        "followed": followed,
        "tail": core.read_namespaced_pod_log("prints", place, tail_lines=1, timestamps=True),
        "succeeded": [item.metadata.name for item in succeeded],
        "node": succeeded[0].spec.node_name in [node.metadata.name for node in core.list_node().items],
        "container": refused(core.read_namespaced_pod_log, "prints", place, container="other"),
    }
    core.delete_namespaced_pod("prints", place)
    return answers


def main() -> None:
    """Run every scenario, and print what each has seen."""
    cluster = Cluster(**json.load(sys.stdin))
    answers: dict[str, Any] = {}
    for run in SCENARIOS:
        try:
            answers[run.__name__] = run(cluster)
        except Exception:
            answers[run.__name__] = {"failed": traceback.format_exc()}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
