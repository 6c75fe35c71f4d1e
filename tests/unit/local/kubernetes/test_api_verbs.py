"""The embedded Kubernetes API over HTTP: what Muster sends, what is refused, faults."""

import json
import random
from typing import Any

import pytest

from muster.local.faults import KubernetesError
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS as JOBS_KIND
from muster.options.hyperpod.local.kubernetes.served_resources import PODS as PODS_KIND
from muster.options.hyperpod.local.kubernetes.served_resources import RESOURCES, Resource
from tests.support.kubernetes_api import JOBS, PODS, ApiClient, job, pod


@pytest.fixture
def api() -> ApiClient:
    return ApiClient()


def test_a_job_is_created_read_listed_and_deleted(api: ApiClient) -> None:
    created = api.call("POST", f"{JOBS}?fieldValidation=Strict", job())
    assert created.code == 201
    assert created.document["spec"]["nprocPerNode"] == "auto"
    assert api.call("GET", f"{JOBS}/train").document == created.document
    listed = api.call("GET", f"{JOBS}?labelSelector=app%3Da&limit=100").document
    assert (listed["kind"], listed["items"]) == ("HyperPodPyTorchJobList", [])
    [item] = api.call("GET", JOBS).document["items"]
    assert item["metadata"]["uid"] == created.document["metadata"]["uid"]
    kinds = api.call("GET", "/apis/sagemaker.amazonaws.com/v1").document["resources"]
    assert [kind["name"] for kind in kinds] == ["hyperpodpytorchjobs"]
    deleted = api.call("DELETE", f"{JOBS}/train").document
    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", item["metadata"]["uid"])
    assert api.call("GET", f"{JOBS}/train").code == 404


def test_a_list_is_read_in_pages(api: ApiClient) -> None:
    for name in ("a", "b", "c", "d"):
        api.call("POST", JOBS, job(name))
    first = api.call("GET", f"{JOBS}?limit=2").document
    api.call("DELETE", f"{JOBS}/b")
    second = api.call("GET", f"{JOBS}?limit=2&continue={first['metadata']['continue']}").document
    names = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second)]
    assert (names, "continue" in second["metadata"]) == ([["a", "b"], ["c", "d"]], False)


def test_what_muster_never_sends_is_not_served(api: ApiClient) -> None:
    api.call("POST", JOBS, job())
    for method, target in (
        ("PUT", f"{JOBS}/train"),
        ("PATCH", f"{JOBS}/train"),
        ("DELETE", JOBS),
        ("GET", f"{JOBS}?watch=true"),
        ("GET", f"{JOBS}/train/status"),
        ("GET", f"{PODS}/worker/log"),
        ("GET", f"{JOBS}?fieldSelector=metadata.name%3Dtrain"),
        ("GET", f"{JOBS}?labelSelector=app+in+(a)"),
        ("GET", f"{JOBS}?labelSelector=app"),
        ("DELETE", f"{JOBS}/train?dryRun=All"),
        ("DELETE", f"{PODS}/worker"),
        ("GET", "/api/v1/namespaces/team/configmaps"),
        ("GET", "/api/v1/nodes"),
    ):
        reply = api.call(method, target)
        assert (reply.code, reply.document["reason"]) == (501, "NotImplemented"), (method, target)
    assert api.call("POST", JOBS, b"{}", content_type="application/yaml").code == 501
    assert api.call("POST", f"{JOBS}?fieldValidation=Ignore", job("other")).code == 501
    assert api.call("POST", PODS, pod("worker")).code == 501
    several = job("other")
    several["spec"]["replicaSpecs"] *= 2
    assert api.call("POST", JOBS, several).code == 501
    for name in ("finalizers", "ownerReferences", "generateName"):
        document = job("other")
        document["metadata"][name] = "a" if name == "generateName" else ["a/b"] if name == "finalizers" else [{}]
        assert api.call("POST", JOBS, document).code == 501, name
    for options in ({"propagationPolicy": "Orphan"}, {"gracePeriodSeconds": 1}):
        assert api.call("DELETE", f"{JOBS}/train", options).code == 501
    assert api.call("GET", f"{JOBS}/train").code == 200


def test_options_of_a_deletion_are_obeyed(api: ApiClient) -> None:
    api.call("POST", JOBS, job())
    for options, code in (
        ({"preconditions": {"uid": "other"}}, 409),
        ({"preconditions": {"resourceVersion": "1"}}, 409),
        ({"propagationPolicy": "Foreground"}, 200),
    ):
        asked = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        assert api.call("DELETE", f"{JOBS}/train", asked).code == code, options


def test_an_unknown_field_is_refused_where_that_is_asked_for(api: ApiClient) -> None:
    document = job(surprise=1)
    document["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["images"] = "x"
    refused = api.call("POST", f"{JOBS}?fieldValidation=Strict", document)
    assert (refused.code, refused.document["reason"]) == (400, "BadRequest")
    for field in ("spec.replicaSpecs[0].template.spec.containers[0].images", "spec.surprise"):
        assert f'unknown field "{field}"' in refused.document["message"]
    text = json.dumps(job()).replace('"replicas": 1', '"replicas": 1, "replicas": 2').encode()
    refused = api.call("POST", f"{JOBS}?fieldValidation=Strict", text)
    assert 'duplicate field "replicas"' in refused.document["message"]
    pruned = api.call("POST", JOBS, document)
    assert pruned.code == 201
    assert "surprise" not in pruned.document["spec"]


def test_everything_that_the_schema_refuses_is_said_at_once(api: ApiClient) -> None:
    document = job(runPolicy={"cleanPodPolicy": "Some", "ttlSecondsAfterFinished": "soon"})
    document["spec"]["replicaSpecs"] = [{"replicas": -1}]
    refused = api.call("POST", JOBS, document).document
    assert refused["code"] == 422
    assert [(cause["field"], cause["reason"]) for cause in refused["details"]["causes"]] == [
        ("spec.replicaSpecs[0].name", "FieldValueRequired"),
        ("spec.replicaSpecs[0].replicas", "FieldValueInvalid"),
        ("spec.runPolicy.cleanPodPolicy", "FieldValueNotSupported"),
        ("spec.runPolicy.ttlSecondsAfterFinished", "FieldValueTypeInvalid"),
    ]


def test_a_body_that_is_no_job_is_refused(api: ApiClient) -> None:
    for body, code in (
        (b"{", 400),
        (b"[]", 400),
        (b'{"a": NaN}', 400),
        (b'{"kind": "Pod", "apiVersion": "v1"}', 400),
        (b'{"metadata": {"name": "x"}}', 400),
        (b'"' + b"x" * (3 * 1024 * 1024) + b'"', 413),
    ):
        reply = api.call("POST", JOBS, body, content_type="application/json")
        assert (reply.code, reply.document["kind"]) == (code, "Status"), body[:80]


def test_a_path_without_a_resource_is_none(api: ApiClient) -> None:
    group = "/apis/sagemaker.amazonaws.com/v1"
    codes = {
        ("GET", f"{group}/namespaces/team/trainingjobs"): 404,
        ("GET", "/apis/sagemaker.amazonaws.com/v2/namespaces/team/hyperpodpytorchjobs"): 404,
        ("POST", f"{group}/hyperpodpytorchjobs"): 405,
        ("GET", f"{group}/hyperpodpytorchjobs/train"): 404,
        ("GET", "/nothing"): 404,
    }
    found = {(method, path): api.call(method, path, {} if method == "POST" else None).code for method, path in codes}
    assert found == codes


def test_a_fault_is_answered_as_the_server_does_and_the_request_is_counted(api: ApiClient) -> None:
    def failing(**fault: Any) -> ApiClient:
        faults = FaultBook()
        faults.add(KubernetesError(verb="create", **fault))
        return ApiClient(api.store, faults=faults)

    refusing = failing(code=429, retry_after=2)
    reply = refusing.call("POST", JOBS, job())
    assert (reply.code, reply.headers["retry-after"], reply.document["reason"]) == (429, "2", "TooManyRequests")
    assert [(row.caller, row.operation) for row in refusing.calls.report()] == [("admin", "create hyperpodpytorchjobs")]
    assert api.call("GET", f"{JOBS}/train").code == 404
    assert failing(code=503, after_effect=True).call("POST", JOBS, job()).code == 503
    assert api.call("GET", f"{JOBS}/train").code == 200


KEYS = (
    *("name", "spec", "metadata", "labels", "annotations", "finalizers", "ownerReferences", "namespace", "containers"),
    *("template", "rules", "verbs", "subjects", "roleRef", "kind", "status", "uid", "data", "limits"),
)
SCALARS = ("x", "a b", "", "../..", "0", 0, -1, 2**70, 1.5, None, True, False)
QUERIES = (
    *(
        "",
        "",
        "?fieldValidation=Strict",
        "?fieldValidation=x",
        "?limit=1",
        "?labelSelector=a%3Db",
        "?labelSelector=%28",
        "?continue=abc",
    ),
    *("?propagationPolicy=Foreground", "?gracePeriodSeconds=x"),
)


class Sender:
    """Makes requests, most of which are wrong somewhere."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same requests each time
        self.pick = self._random.choice

    def value(self, depth: int = 0) -> Any:
        kind = self._random.random()
        if kind < 0.5 or depth > 3:
            return self.pick(SCALARS)
        if kind < 0.8:
            return {self.pick(KEYS): self.value(depth + 1) for _ in range(self._random.randrange(4))}
        return [self.value(depth + 1) for _ in range(self._random.randrange(3))]

    def document(self, resource: Resource) -> Any:
        name = self.pick("abc")
        known = {JOBS_KIND: job(name), PODS_KIND: pod(name)}
        plain = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        document: dict[str, Any] = known.get(resource, plain)
        for _ in range(self._random.randrange(3)):
            place = self.pick([document, *(item for item in document.values() if isinstance(item, dict))])
            place[self.pick([*place, *KEYS])] = self.value()
        return document

    def request(self) -> tuple[str, str, Any]:
        resource = self.pick(RESOURCES)
        root = f"/apis/{resource.group}" if resource.group else "/api"
        place = f"/namespaces/{self.pick(['team', 'team', 'default', 'none'])}"
        path = f"{root}/{resource.version}{place}/{resource.plural}"
        method = self.pick(["GET", "POST", "POST", "DELETE"])
        if method == "POST":
            return method, path + self.pick(QUERIES), self.document(resource)
        name = self.pick(["", "/a", "/b", "/c", "/a/status", "/a/x"])
        body = self.pick([None, self.value()]) if method == "DELETE" else None
        return method, path + name + self.pick(QUERIES), body


@pytest.mark.parametrize("seed", range(4))
def test_no_request_is_an_error_of_the_server(seed: int) -> None:
    api, sender = ApiClient(), Sender(seed)
    codes = set()
    for _ in range(400):
        method, target, body = sender.request()
        reply = api.call(method, target, body, content_type="application/json")
        codes.add(reply.code)
        assert reply.code != 500, (method, target, body, reply.body)
    assert {200, 201, 400, 404, 422, 501} <= codes
