"""Whatever is sent to the embedded Kubernetes API, it has an answer of its own for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import JOBS, RESOURCES
from muster.local.kubernetes.objects import patches
from muster.local.kubernetes.objects.resource import Resource
from tests.support.kubernetes_api import ApiClient, job, pod

KEYS = (
    *(
        "name",
        "spec",
        "metadata",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "generateName",
        "namespace",
    ),
    *("containers", "template", "rules", "verbs", "subjects", "roleRef", "kind", "status", "uid", "data", "limits"),
)
SCALARS = ("x", "a b", "", "../..", "0", 0, -1, 2**70, 1.5, None, True, False)
QUERIES = (
    *("", "", "?fieldValidation=Strict", "?dryRun=All", "?limit=1", "?labelSelector=a%3Db", "?labelSelector=%28"),
    *("?fieldSelector=x", "?continue=abc", "?propagationPolicy=Foreground", "?gracePeriodSeconds=x"),
)
POINTERS = ("/metadata/labels", "/spec", "/spec/x", "/metadata", "", "/a/0", "/spec/containers/-", "x")


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
        known = {JOBS: job(name), PODS: pod(name)}
        plain = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        document: dict[str, Any] = known.get(resource, plain)
        for _ in range(self._random.randrange(3)):
            place = self.pick([document, *(item for item in document.values() if isinstance(item, dict))])
            place[self.pick([*place, *KEYS])] = self.value()
        return document

    def operation(self) -> dict[str, Any]:
        kind = self.pick(["add", "remove", "replace", "test", "copy", "move", "x"])
        return {"op": kind, "path": self.pick(POINTERS), "from": self.pick(POINTERS), "value": self.value()}

    def request(self) -> tuple[str, str, Any, str]:
        resource = self.pick(RESOURCES)
        root = f"/apis/{resource.group}" if resource.group else "/api"
        place = f"/namespaces/{self.pick(['team', 'team', 'default', 'none'])}" if resource.namespaced else ""
        name = self.pick(["", "/a", "/b", "/c", "/a/status", "/a/log", "/a/binding", "/a/eviction", "/a/x"])
        method = self.pick(["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"])
        kind, body = "application/json", None
        if method in ("POST", "PUT"):
            body = self.document(resource)
        elif method == "PATCH":
            kind = self.pick([patches.MERGE, patches.JSON, patches.STRATEGIC])
            body = [self.operation(), self.operation()] if kind == patches.JSON else self.document(resource)
        elif method == "DELETE":
            body = self.pick([None, self.value()])
        path = f"{root}/{resource.version}{place}/{resource.plural}{'' if method == 'POST' else name}"
        return method, path + self.pick(QUERIES), body, kind


@pytest.mark.parametrize("seed", range(4))
def test_no_request_is_an_error_of_the_server(seed: int) -> None:
    api, sender = ApiClient(), Sender(seed)
    codes = set()
    for _ in range(300):
        method, target, body, kind = sender.request()
        reply = api.call(method, target, body, content_type=kind)
        codes.add(reply.code)
        assert reply.code != 500, (method, target, body, reply.body)
    assert {200, 201, 400, 404, 422} <= codes
