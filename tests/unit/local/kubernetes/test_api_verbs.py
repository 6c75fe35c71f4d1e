"""The embedded Kubernetes API over HTTP: verbs, validation, pages, watches, logs, faults."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster.local.faults import KubernetesError
from muster.local.kubernetes.kinds import resources
from muster.local.kubernetes.objects.selectors import EVERYTHING
from muster.local.kubernetes.rights.users import User
from muster.local.kubernetes.server.application import Unobserved
from muster.local.kubernetes.server.pod_logs import LogFile
from muster.local.kubernetes.server.request_info import RequestInfo
from muster.local.kubernetes.server.watch_stream import WatchOptions, stream
from tests.support.kubernetes_api import JOBS, PODS, ApiClient, cluster_store, job, pod


@pytest.fixture
def api() -> ApiClient:
    return ApiClient()


def test_the_api_says_what_it_has(api: ApiClient) -> None:
    assert api.call("GET", "/version").document["minor"] == "33"
    assert api.call("GET", "/api").document["versions"] == ["v1"]
    groups = {group["name"] for group in api.call("GET", "/apis").document["groups"]}
    assert {"sagemaker.amazonaws.com", "kueue.x-k8s.io", "rbac.authorization.k8s.io"} <= groups
    found = api.call("GET", "/apis/sagemaker.amazonaws.com/v1").document["resources"]
    assert [row["name"] for row in found] == ["hyperpodpytorchjobs", "hyperpodpytorchjobs/status"]
    assert api.call("GET", "/apis/sagemaker.amazonaws.com").document["preferredVersion"]["version"] == "v1"
    assert api.call("GET", "/healthz").body == b"ok"
    assert api.call("GET", "/apis/nothing.example.com/v1").code == 404


def test_an_object_lives_through_all_verbs(api: ApiClient) -> None:
    created = api.call("POST", JOBS, job())
    assert created.code == 201
    assert created.document["spec"]["nprocPerNode"] == "auto"
    read = api.call("GET", f"{JOBS}/train").document
    assert read == created.document
    replaced = api.call("PUT", f"{JOBS}/train", {**read, "spec": {**read["spec"], "nprocPerNode": "2"}})
    assert replaced.document["metadata"]["generation"] == 2
    assert api.call("PUT", f"{JOBS}/train", read).code == 409
    patched = api.call("PATCH", f"{JOBS}/train", {"spec": {"nprocPerNode": "4"}}, content_type=MERGE)
    assert patched.document["spec"]["nprocPerNode"] == "4"
    deleted = api.call("DELETE", f"{JOBS}/train").document
    assert deleted["status"] == "Success"
    assert deleted["details"]["uid"] == read["metadata"]["uid"]
    assert api.call("GET", f"{JOBS}/train").code == 404


MERGE = "application/merge-patch+json"


def test_the_status_is_written_through_its_own_path(api: ApiClient) -> None:
    api.call("POST", JOBS, job())
    status = {"status": {"restartCount": 2}}
    written = api.call("PATCH", f"{JOBS}/train/status", status, content_type=MERGE)
    assert written.document["status"]["restartCount"] == 2
    bad = {"status": {"conditions": [{"type": "Running", "status": "Maybe"}]}}
    refused = api.call("PATCH", f"{JOBS}/train/status", bad, content_type=MERGE)
    assert refused.code == 422
    assert 'Unsupported value: "Maybe": supported values: "True", "False", "Unknown"' in refused.document["message"]


def test_an_unknown_field_is_refused_where_that_is_asked_for(api: ApiClient) -> None:
    document = job(surprise=1)
    document["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["images"] = "x"
    refused = api.call("POST", f"{JOBS}?fieldValidation=Strict", document)
    assert (refused.code, refused.document["reason"]) == (400, "BadRequest")
    assert refused.document["message"] == (
        'HyperPodPyTorchJob in version "v1" cannot be handled as a HyperPodPyTorchJob: strict decoding error: '
        'unknown field "spec.replicaSpecs[0].template.spec.containers[0].images", unknown field "spec.surprise"'
    )
    warned = api.call("POST", JOBS, document)
    assert warned.code == 201
    assert "surprise" not in warned.document["spec"]
    assert warned.headers["warning"].startswith('299 - "unknown field')
    ignored = api.call("POST", f"{JOBS}?fieldValidation=Ignore", {**document, "metadata": {"name": "other"}})
    assert "warning" not in ignored.headers
    assert api.call("POST", f"{JOBS}?fieldValidation=Sometimes", document).code == 422


def test_a_field_that_is_there_twice_is_refused_where_that_is_asked_for(api: ApiClient) -> None:
    text = json.dumps(job()).replace('"replicas": 1', '"replicas": 1, "replicas": 2').encode()
    refused = api.call("POST", f"{JOBS}?fieldValidation=Strict", text)
    assert 'duplicate field "spec.replicaSpecs[0].replicas"' in refused.document["message"]


def test_a_patch_is_strict_where_that_is_asked_for(api: ApiClient) -> None:
    api.call("POST", JOBS, job())
    patch = {"spec": {"surprise": 1}}
    refused = api.call("PATCH", f"{JOBS}/train?fieldValidation=Strict", patch, content_type=MERGE)
    assert refused.code == 422
    assert 'unknown field "spec.surprise"' in refused.document["message"]


def test_everything_that_the_schema_refuses_is_said_at_once(api: ApiClient) -> None:
    document = job(runPolicy={"cleanPodPolicy": "Some", "ttlSecondsAfterFinished": "soon"})
    document["spec"]["replicaSpecs"].append({"replicas": -1})
    refused = api.call("POST", JOBS, document).document
    assert refused["code"] == 422
    assert [(cause["field"], cause["reason"]) for cause in refused["details"]["causes"]] == [
        ("spec.replicaSpecs[1].name", "FieldValueRequired"),
        ("spec.replicaSpecs[1].replicas", "FieldValueInvalid"),
        ("spec.runPolicy.cleanPodPolicy", "FieldValueNotSupported"),
        ("spec.runPolicy.ttlSecondsAfterFinished", "FieldValueTypeInvalid"),
    ]
    assert refused["message"].startswith('HyperPodPyTorchJob.sagemaker.amazonaws.com "train" is invalid: [')


def test_null_in_a_job_is_as_if_it_were_not_there(api: ApiClient) -> None:
    created = api.call("POST", JOBS, job(nprocPerNode=None, runPolicy=None))
    assert created.document["spec"]["nprocPerNode"] == "auto"
    assert "runPolicy" not in created.document["spec"]


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"a": NaN}', "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "application/vnd.kubernetes.protobuf", 415),
        (b'{"kind": "Pod", "apiVersion": "v1"}', "application/json", 400),
        (b'{"metadata": {"name": "x"}}', "application/json", 400),
        (b'"' + b"x" * (3 * 1024 * 1024) + b'"', "application/json", 413),
    ],
)
def test_a_body_that_is_no_job_is_refused(api: ApiClient, body: bytes, content_type: str, code: int) -> None:
    reply = api.call("POST", JOBS, body, content_type=content_type)
    assert (reply.code, reply.document["kind"]) == (code, "Status")


def test_yaml_is_read_as_well(api: ApiClient) -> None:
    import yaml  # noqa: PLC0415

    reply = api.call("POST", JOBS, yaml.safe_dump(job()).encode(), content_type="application/yaml")
    assert reply.code == 201


def test_a_built_in_object_of_a_wrong_type_cannot_be_read(api: ApiClient) -> None:
    reply = api.call("POST", PODS, pod("worker", containers="x"))
    assert (reply.code, reply.document["reason"]) == (400, "BadRequest")


def test_a_pod_needs_its_service_account(api: ApiClient) -> None:
    reply = api.call("POST", PODS, pod("worker", serviceAccountName="muster-run"))
    assert (reply.code, reply.document["reason"]) == (403, "Forbidden")
    assert reply.document["message"] == (
        'pods "worker" is forbidden: error looking up service account team/muster-run: serviceaccount "muster-run" not '
        "found"
    )


def test_a_rehearsal_writes_nothing(api: ApiClient) -> None:
    before = api.store.version
    watch = api.store.watch(since=before)
    assert api.call("POST", f"{JOBS}?dryRun=All", job()).code == 201
    assert api.call("GET", f"{JOBS}/train").code == 404
    assert api.store.version == before
    assert watch.next(0) is None
    assert api.call("POST", f"{JOBS}?dryRun=Some", job()).code == 422


def test_a_list_is_read_in_pages(api: ApiClient) -> None:
    for index in range(5):
        api.call("POST", JOBS, job(f"job-{index}"))
    first = api.call("GET", f"{JOBS}?limit=2").document
    assert first["kind"] == "HyperPodPyTorchJobList"
    assert first["metadata"]["remainingItemCount"] == 3
    api.call("DELETE", f"{JOBS}/job-3")
    names, page = [], first
    while True:
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        if token is None:
            break
        page = api.call("GET", f"{JOBS}?limit=2&continue={token}").document
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names == [f"job-{index}" for index in range(5)]
    api.store.compact()
    gone = api.call("GET", f"{JOBS}?limit=2&continue={first['metadata']['continue']}")
    assert (gone.code, gone.document["reason"]) == (410, "Expired")
    assert api.call("GET", f"{JOBS}?continue=x").code == 400


def test_a_list_of_a_version_that_is_not_there_yet_times_out(api: ApiClient) -> None:
    reply = api.call("GET", f"{JOBS}?resourceVersion=999999")
    assert (reply.code, reply.document["reason"]) == (504, "Timeout")
    assert api.call("GET", f"{JOBS}?resourceVersion=x").code == 400


def test_a_watch_sends_changes_and_a_bookmark_at_its_end(api: ApiClient) -> None:
    version = api.call("GET", JOBS).document["metadata"]["resourceVersion"]
    api.call("POST", JOBS, job())
    api.call("DELETE", f"{JOBS}/train")
    options = replace(WatchOptions.of({"resourceVersion": version, "allowWatchBookmarks": "true"}), seconds=0.0)

    async def read() -> list[Any]:
        return [json.loads(line) async for line in stream(api.store, resources.JOBS, "team", EVERYTHING, options)]

    events = asyncio.run(read())
    assert [event["type"] for event in events] == ["ADDED", "DELETED", "BOOKMARK"]
    assert events[-1]["object"]["metadata"]["resourceVersion"] == str(api.store.version)


def test_a_watch_from_a_forgotten_version_says_so_in_its_stream() -> None:
    api = ApiClient(cluster_store(history=2))
    version = api.store.version
    for index in range(4):
        api.call("POST", JOBS, job(f"job-{index}"))
    reply = api.call("GET", f"{JOBS}?watch=true&resourceVersion={version}")
    assert reply.code == 200
    (event,) = reply.lines
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_objects_are_deleted_by_a_selector(api: ApiClient) -> None:
    for name in ("a", "b"):
        api.call("POST", PODS, pod(name))
    reply = api.call("DELETE", f"{PODS}?labelSelector=app%3Da").document
    assert [item["metadata"]["name"] for item in reply["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in api.call("GET", PODS).document["items"]] == ["b"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"preconditions": {"uid": "other"}}, 409),
        ({"propagationPolicy": "Sideways"}, 422),
        ({"gracePeriodSeconds": -1}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"propagationPolicy": "Foreground"}, 200),
    ],
)
def test_options_of_a_deletion_are_obeyed(api: ApiClient, options: dict[str, Any], code: int) -> None:
    api.call("POST", JOBS, job())
    assert api.call("DELETE", f"{JOBS}/train", {"kind": "DeleteOptions", "apiVersion": "v1", **options}).code == code


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/sagemaker.amazonaws.com/v1/namespaces/team/trainingjobs", 404),
        ("GET", "/apis/sagemaker.amazonaws.com/v2/namespaces/team/hyperpodpytorchjobs", 404),
        ("POST", "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs", 405),
        ("DELETE", "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs", 405),
        ("GET", "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs/train", 404),
        ("GET", "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs?fieldSelector=metadata.name%3Dtrain", 200),
        ("GET", f"{JOBS}/train/scale", 404),
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", 405),
        ("GET", "/nothing", 404),
    ],
)
def test_a_path_without_a_resource_is_none(api: ApiClient, method: str, path: str, code: int) -> None:
    assert api.call(method, path, {} if method == "POST" else None).code == code


class OnePodsLogs:
    """Two starts of one container, in files."""

    def __init__(self, place: Path) -> None:
        self.files = {previous: place / f"{previous}.log" for previous in (False, True)}
        for previous, file in self.files.items():
            word = "before" if previous else "now"
            file.write_text("".join(f"2026-11-22T10:00:0{n}.000000000Z {word} {n}\n" for n in range(4)))

    def log_of(self, namespace: str, pod: str, container: str, *, previous: bool) -> LogFile | None:
        return LogFile(self.files[previous], running=False) if container == "main" else None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "now 0\nnow 1\nnow 2\nnow 3\n"),
        ("?tailLines=1", "now 3\n"),
        ("?tailLines=0", ""),
        ("?previous=true&tailLines=1", "before 3\n"),
        ("?timestamps=true&tailLines=1", "2026-11-22T10:00:03.000000000Z now 3\n"),
        ("?sinceTime=2026-11-22T10:00:02Z", "now 2\nnow 3\n"),
        ("?sinceSeconds=1", "now 2\nnow 3\n"),
        ("?limitBytes=5", "now 0"),
        ("?follow=true&tailLines=2", "now 2\nnow 3\n"),
        ("?container=main&tailLines=1", "now 3\n"),
    ],
)
def test_the_log_of_a_pod_is_read(tmp_path: Path, query: str, expected: str) -> None:
    store = cluster_store(now=lambda: datetime(2026, 11, 22, 10, 0, 3, tzinfo=UTC))
    api = ApiClient(store, OnePodsLogs(tmp_path))
    api.call("POST", PODS, pod("worker"))
    reply = api.call("GET", f"{PODS}/worker/log{query}")
    assert (reply.code, reply.headers["content-type"]) == (200, "text/plain")
    assert reply.body.decode() == expected


def test_a_log_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    api = ApiClient(logs=OnePodsLogs(tmp_path))
    two = [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]
    api.call("POST", PODS, pod("worker", containers=two))
    for query, expected in (
        ("", "a container name must be specified for pod worker, choose one of: [main side]"),
        ("?container=other", "container other is not valid for pod worker"),
        ("?container=side", 'container "side" in pod "worker" is waiting to start: ContainerCreating'),
        ("?container=side&previous=true", 'previous terminated container "side" in pod "worker" not found'),
    ):
        reply = api.call("GET", f"{PODS}/worker/log{query}")
        assert (reply.code, reply.document["message"]) == (400, expected)
    assert api.call("GET", f"{PODS}/none/log").code == 404
    assert api.call("GET", f"{PODS}/worker/log?container=main&tailLines=-1").code == 422


class OneFault(Unobserved):
    """A fault for every request."""

    def __init__(self, fault: KubernetesError) -> None:
        self.fault = fault
        self.counted: list[str] = []

    def count(self, info: RequestInfo, user: User) -> None:
        self.counted.append(f"{user.name} {info.verb} {info.resource}")

    def take_fault(self, info: RequestInfo, user: User) -> KubernetesError | None:
        return self.fault


def test_a_fault_is_answered_as_the_server_does(api: ApiClient) -> None:
    observer = OneFault(KubernetesError(code=429, retry_after=2))
    failing = ApiClient(api.store, observer=observer)
    reply = failing.call("POST", JOBS, job())
    assert (reply.code, reply.headers["retry-after"]) == (429, "2")
    assert reply.document["reason"] == "TooManyRequests"
    assert reply.document["details"]["retryAfterSeconds"] == 2
    assert observer.counted == ["admin create hyperpodpytorchjobs"]
    assert api.call("GET", f"{JOBS}/train").code == 404


def test_an_answer_is_lost_after_its_effect(api: ApiClient) -> None:
    failing = ApiClient(api.store, observer=OneFault(KubernetesError(code=503, after_effect=True)))
    assert failing.call("POST", JOBS, job()).code == 503
    assert api.call("GET", f"{JOBS}/train").code == 200


def test_a_pod_is_bound_and_evicted(api: ApiClient) -> None:
    api.call("POST", PODS, pod("worker"))
    assert api.call("POST", f"{PODS}/worker/binding", {"target": {"kind": "Node", "name": "node-1"}}).code == 201
    assert api.call("POST", f"{PODS}/worker/binding", {"target": {"kind": "Node", "name": "node-2"}}).code == 409
    assert api.call("POST", f"{PODS}/worker/eviction", {}).code == 201
    assert api.call("GET", f"{PODS}/worker").document["metadata"]["deletionGracePeriodSeconds"] == 30


def test_definitions_of_custom_resources_can_be_read(api: ApiClient) -> None:
    for definition in ("hyperpodpytorchjobs.sagemaker.amazonaws.com",):
        api.store.create(resources.CRDS, {"metadata": {"name": definition}, "spec": {}})
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}"
        assert api.call("GET", path).code == 200
