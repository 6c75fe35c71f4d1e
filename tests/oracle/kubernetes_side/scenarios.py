"""Scenarios on an embedded cluster: each returns what it has seen, as JSON. Nothing is judged here.

build/kubernetes/bin/python -m tests.oracle.kubernetes_side.scenarios < CLUSTER.json
"""

from __future__ import annotations

import datetime
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kubernetes import client, watch

from tests.oracle.kubernetes_side.callers import Cluster, refusal

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
    """The jobs of the cluster's namespace, for one user."""

    def __init__(self, cluster: Cluster, user: str = "root") -> None:
        self._place = (GROUP, VERSION, cluster.namespace, PLURAL)
        self._api = client.CustomObjectsApi(cluster.api(user))

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
        "gone": refused(jobs.get, "lifecycle"),
    }


@scenario
def conflicts(cluster: Cluster) -> Any:
    jobs = Jobs(cluster)
    created = jobs.create(job("conflicts"))
    taken = refused(jobs.create, job("conflicts"))
    jobs.patch("conflicts", {"spec": {"nprocPerNode": "2"}})
    old = refused(jobs.replace, "conflicts", created)
    old_patch = refused(
        jobs.patch, "conflicts", {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}}
    )
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    wrong = refused(jobs.delete, "conflicts", body=other)
    jobs.delete("conflicts")
    return {"taken": taken, "old": old, "old_patch": old_patch, "wrong": wrong}


@scenario
def validation(cluster: Cluster) -> Any:
    jobs = Jobs(cluster)
    unknown = job("validation", surprise=1)
    unknown["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["images"] = "x"
    wrong = job("validation", runPolicy={"cleanPodPolicy": "Some", "ttlSecondsAfterFinished": "soon"})
    wrong["spec"]["replicaSpecs"].append({"replicas": 1})
    answers = {
        "unknown": refused(jobs.create, unknown, field_validation="Strict"),
        "wrong": refused(jobs.create, wrong),
        "name": refused(jobs.create, job("Upper_Case")),
        "namespace": refused(jobs.create, {**job("a"), "metadata": {"name": "a", "namespace": "default"}}),
        "kind": refused(jobs.create, {**job("a"), "kind": "PyTorchJob"}),
        "selector": refused(jobs.list, field_selector="spec.nprocPerNode=1"),
        "label": refused(jobs.list, label_selector="a in x"),
    }
    tried = jobs.create(job("validation"), dry_run="All")
    return {**answers, "tried": tried["metadata"]["name"], "kept": refused(jobs.get, "validation")}


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
    stream = watch.Watch().stream(
        api.list_namespaced_custom_object,
        *place,
        resource_version=version,
        timeout_seconds=1,
        allow_watch_bookmarks=True,
    )
    bookmarks = [event["type"] for event in stream if event["type"] == "BOOKMARK"]
    raw = api.list_namespaced_custom_object(
        *place, resource_version="5", watch=True, timeout_seconds=1, _preload_content=False
    )
    return {
        "seen": seen,
        "bookmarks": bookmarks,
        "forgotten": json.loads(raw.read().splitlines()[0]),
        "forgotten_raised": refused(
            lambda: list(watch.Watch().stream(api.list_namespaced_custom_object, *place, resource_version="5"))
        ),
    }


@scenario
def pages(cluster: Cluster) -> Any:
    core = client.CoreV1Api(cluster.api())
    for index in range(5):
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"page-{index}", labels={"pages": "yes"}))
        core.create_namespaced_config_map(cluster.namespace, body)
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(cluster.namespace, label_selector="pages", limit=2, _continue=token)
        names.append([item.metadata.name for item in page.items])
        token = page.metadata._continue
        if not token:
            break
    gone = core.delete_collection_namespaced_config_map(cluster.namespace, label_selector="pages")
    left = core.list_namespaced_config_map(cluster.namespace, label_selector="pages").items
    return {"names": names, "deleted": gone.kind, "left": len(left)}


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
        "tail": core.read_namespaced_pod_log("prints", place, tail_lines=1),
        "timestamps": core.read_namespaced_pod_log("prints", place, tail_lines=1, timestamps=True),
        "limited": core.read_namespaced_pod_log("prints", place, limit_bytes=6),
        "succeeded": [item.metadata.name for item in succeeded],
        "node": succeeded[0].spec.node_name in [node.metadata.name for node in core.list_node().items],
        "container": refused(core.read_namespaced_pod_log, "prints", place, container="other"),
        "previous": refused(core.read_namespaced_pod_log, "prints", place, previous=True),
        "account": refused(
            core.create_namespaced_pod,
            place,
            {**pod("no-account"), "spec": {**pod("x")["spec"], "serviceAccountName": "none"}},
        ),
    }
    deleted = core.delete_namespaced_pod("prints", place)
    return {**answers, "deleted": deleted.metadata.name}


@scenario
def rights(cluster: Cluster) -> Any:
    """The developer's entry has a group, and a role that may create and get jobs is bound to that group."""
    own, core = Jobs(cluster, "developer"), client.CoreV1Api(cluster.api("developer"))
    roles = client.RbacAuthorizationV1Api(cluster.api("developer"))
    before = refused(own.create, job("rights"))
    rule = {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["create", "get"]}
    role = {"metadata": {"name": "oracle"}, "rules": [rule]}
    binding = {
        "metadata": {"name": "oracle"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "oracle"},
        "subjects": [{"kind": "Group", "name": "oracle-developers", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    admin = client.RbacAuthorizationV1Api(cluster.api())
    admin.create_namespaced_role(cluster.namespace, role)
    admin.create_namespaced_role_binding(cluster.namespace, binding)
    created = own.create(job("rights"))
    asked = client.V1ResourceAttributes(verb="create", group=GROUP, resource=PLURAL, namespace=cluster.namespace)
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked))
    allowed = client.AuthorizationV1Api(cluster.api("developer")).create_self_subject_access_review(review)
    who = client.AuthenticationV1Api(cluster.api("developer")).create_self_subject_review({})
    answers = {
        "before": before,
        "created": created["metadata"]["name"],
        "allowed": allowed.status.allowed,
        "who": (who.status.user_info.username, who.status.user_info.groups),
        "delete": refused(own.delete, "rights"),
        "pods": refused(core.list_namespaced_pod, cluster.namespace),
        "nodes": refused(core.list_node),
        "escalate": refused(roles.create_namespaced_role, cluster.namespace, role),
        "elsewhere": refused(core.list_namespaced_pod, "default"),
    }
    Jobs(cluster).delete("rights")
    admin.delete_namespaced_role_binding("oracle", cluster.namespace)
    return {**answers, "after": refused(own.get, "rights")}


@scenario
def tokens(cluster: Cluster) -> Any:
    def listed(token: str) -> Any:
        return refused(client.CoreV1Api(cluster.api(token=token)).list_namespace)

    minutes = datetime.timedelta(minutes=1)
    return {
        "fresh": listed(cluster.token("root")),
        "older": listed(cluster.token("root", age=14 * minutes)),
        "expired": listed(cluster.token("root", age=16 * minutes)),
        "foreign": listed(cluster.token("root", cluster="another")),
        "stranger": listed(cluster.token("stranger")),
        "nonsense": listed("k8s-aws-v1.bm9uc2Vuc2U"),
    }


@scenario
def deletion(cluster: Cluster) -> Any:
    jobs, core = Jobs(cluster), client.CoreV1Api(cluster.api())
    body = job("deletion")
    body["metadata"]["finalizers"] = ["oracle/waits"]
    created = jobs.create(body)
    owner = {
        "apiVersion": created["apiVersion"],
        "kind": created["kind"],
        "name": "deletion",
        "uid": created["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    core.create_namespaced_config_map(cluster.namespace, {"metadata": {"name": "deletion", "ownerReferences": [owner]}})
    waits = jobs.delete("deletion", propagation_policy="Foreground")
    added = refused(jobs.patch, "deletion", {"metadata": {"finalizers": ["oracle/waits", "oracle/more"]}})
    jobs.patch("deletion", {"metadata": {"finalizers": None}})
    return {
        "finalizers": waits["metadata"]["finalizers"],
        "timestamp": bool(waits["metadata"]["deletionTimestamp"]),
        "added": added,
        "gone": refused(jobs.get, "deletion"),
        "dependent": refused(core.read_namespaced_config_map, "deletion", cluster.namespace),
    }


def main() -> None:
    """Run every scenario, and print what each has seen."""
    given = json.load(sys.stdin)
    cluster = Cluster(**{**given, "keys": {user: tuple(keys) for user, keys in given["keys"].items()}})
    answers: dict[str, Any] = {}
    for run in SCENARIOS:
        try:
            answers[run.__name__] = run(cluster)
        except Exception:
            answers[run.__name__] = {"failed": traceback.format_exc()}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
