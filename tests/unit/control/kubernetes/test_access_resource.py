"""The roles of functions in a cluster: made once however often it is asked for, and never a hanging stack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from muster.control.kubernetes.access_resource import (
    CREATE_SECONDS,
    DELETE_SECONDS,
    AccessAnswer,
    AccessRequest,
    answered,
)
from muster.control.kubernetes.api import Connection, KubernetesApi
from muster.control.kubernetes.cluster_errors import ClusterGoneError
from muster.control.kubernetes.namespace_roles import NamespaceRoles
from muster.control.kubernetes.transport import Answer
from muster.control.runtime import clock
from tests.memory.clock import VirtualClock

PROPERTIES: dict[str, Any] = {
    "ServiceToken": "arn:aws:lambda:us-east-1:123456789012:function:access",
    "Cluster": "research",
    "EksCluster": "research-eks",
    "Stack": "muster",
    "Namespaces": ["team-a", "team-b"],
    "Roles": [
        {
            "Name": "muster-muster-plan-0a1b2c3d",
            "Group": "muster:muster:plan:0a1b2c3d",
            "Rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "get"]}],
        }
    ],
}
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/muster-muster-plan-0a1b2c3d"
BINDING = ROLE.replace("/roles/", "/rolebindings/")


class Api:
    """The objects of a cluster by path. `refusals` are statuses that come before it answers; None: no answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.refusals: list[int | None] = []
        self.missing: set[str] = set()
        self.denied: set[str] = set()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        assert headers["Authorization"] == "Bearer token"
        if self.refusals:
            status = self.refusals.pop(0)
            if status is None:
                message = "connection refused"
                raise ConnectionError(message)
            return Answer(status, {}, json.dumps({"reason": "Refused", "message": "not yet"}).encode())
        return self._answered(method, path, json.loads(body) if body else {})

    def _answered(self, method: str, path: str, document: Any) -> Answer:
        namespace = path.split("/")[5]
        if namespace in self.missing:
            return self._refused(404, "NotFound")
        if namespace in self.denied:
            return self._refused(403, "Forbidden")
        key = f"{path}/{document['metadata']['name']}" if method == "POST" else path
        if method == "POST" and key in self.objects:
            return self._refused(409, "AlreadyExists")
        if method != "POST" and key not in self.objects:
            return self._refused(404, "NotFound")
        if method == "DELETE":
            del self.objects[key]
            return Answer(200, {}, b"{}")
        self.objects.setdefault(key, document)
        return Answer(200, {}, json.dumps(self.objects[key]).encode())

    @staticmethod
    def _refused(status: int, reason: str) -> Answer:
        return Answer(status, {}, json.dumps({"reason": reason, "message": reason}).encode())


@pytest.fixture
def api() -> Iterator[Api]:
    with clock.replaced(VirtualClock()):
        yield Api()


def ask(api: Api, kind: str, properties: Mapping[str, Any] = PROPERTIES, **more: str) -> AccessAnswer:
    event = {
        "RequestType": kind,
        "ResponseURL": "https://bucket.example/answer?signature=x",
        "StackId": "stack",
        "RequestId": "1",
        "LogicalResourceId": "Roles",
        "ResourceProperties": properties,
        **more,
    }

    def open_api(roles: NamespaceRoles) -> KubernetesApi:
        return KubernetesApi(roles.cluster, lambda: Connection(api, "here"), lambda: "token")

    return answered(AccessRequest.model_validate(event), open_api)


def test_each_namespace_gets_a_role_and_its_binding_to_the_group_of_the_function(api: Api) -> None:
    answer = ask(api, "Create")
    assert (answer.Status, answer.Reason) == ("SUCCESS", "1 roles in team-a, team-b")
    assert len(api.objects) == 4
    assert api.objects[ROLE]["rules"] == PROPERTIES["Roles"][0]["Rules"]
    assert api.objects[ROLE]["metadata"]["labels"]["muster/stack"] == "muster"
    binding = api.objects[BINDING]
    assert binding["roleRef"]["name"] == "muster-muster-plan-0a1b2c3d"
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "muster:muster:plan:0a1b2c3d"}
    ]


def test_a_repeated_call_changes_nothing_and_has_the_same_id(api: Api) -> None:
    first = ask(api, "Create")
    before = dict(api.objects)
    for kind in ("Create", "Update"):
        again = ask(api, kind, PhysicalResourceId=first.PhysicalResourceId)
        assert again == first
    assert api.objects == before


def test_what_a_person_has_changed_is_put_right(api: Api) -> None:
    ask(api, "Create")
    api.objects[ROLE] = {**api.objects[ROLE], "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    assert ask(api, "Update").Status == "SUCCESS"
    assert api.objects[ROLE]["rules"] == PROPERTIES["Roles"][0]["Rules"]


def test_other_properties_are_another_resource_whose_former_objects_cloudformation_removes(api: Api) -> None:
    first = ask(api, "Create")
    changed = {**PROPERTIES, "Namespaces": ["team-b"], "Roles": [{**PROPERTIES["Roles"][0], "Name": "muster-new"}]}
    second = ask(api, "Update", changed, PhysicalResourceId=first.PhysicalResourceId)
    assert second.PhysicalResourceId != first.PhysicalResourceId
    # The way into a namespace that the settings have given up is closed by then.
    api.denied = {"team-a"}
    gone = ask(api, "Delete", PROPERTIES, PhysicalResourceId=first.PhysicalResourceId)
    assert gone.Status == "SUCCESS"
    assert gone.Reason.startswith("not removed, and without effect: ")
    assert {path.split("/")[5] for path in api.objects if path.endswith("muster-new")} == {"team-b"}
    assert not [path for path in api.objects if "team-b" in path and not path.endswith("muster-new")]


@pytest.mark.parametrize("status", [401, 403])
def test_a_cluster_that_does_not_know_the_role_yet_is_asked_again(api: Api, status: int) -> None:
    api.refusals = [status] * 9
    assert ask(api, "Create").Status == "SUCCESS"


def test_a_cluster_that_never_lets_the_function_in_is_said_within_its_time(api: Api) -> None:
    api.denied = {"team-a"}
    begin = clock.monotonic()
    answer = ask(api, "Create")
    assert answer.Status == "FAILED"
    assert "403" in answer.Reason
    assert clock.monotonic() - begin <= CREATE_SECONDS + 5


def test_a_missing_namespace_is_named_with_what_to_do(api: Api) -> None:
    api.missing = {"team-b"}
    answer = ask(api, "Create")
    assert answer.Status == "FAILED"
    assert "kubectl create namespace team-b" in answer.Reason


def test_a_deletion_removes_everything_and_may_be_repeated(api: Api) -> None:
    made = ask(api, "Create")
    for _ in range(2):
        answer = ask(api, "Delete", PhysicalResourceId=made.PhysicalResourceId)
        assert (answer.Status, answer.Reason) == ("SUCCESS", "removed")
        assert answer.PhysicalResourceId == made.PhysicalResourceId
    assert api.objects == {}


def test_a_deletion_succeeds_where_the_cluster_does_not_answer(api: Api) -> None:
    api.refusals = [None] * 1_000
    begin = clock.monotonic()
    answer = ask(api, "Delete", PhysicalResourceId="former")
    assert answer.Status == "SUCCESS"
    assert "does not answer" in answer.Reason
    assert clock.monotonic() - begin <= DELETE_SECONDS + 60


def test_a_deletion_succeeds_where_the_cluster_is_gone() -> None:
    def gone(roles: NamespaceRoles) -> KubernetesApi:
        raise ClusterGoneError(roles.cluster, roles.eks_cluster)

    event = {
        "RequestType": "Delete",
        "ResponseURL": "https://bucket.example/answer",
        "StackId": "stack",
        "RequestId": "1",
        "LogicalResourceId": "Roles",
        "PhysicalResourceId": "former",
        "ResourceProperties": PROPERTIES,
    }
    answer = answered(AccessRequest.model_validate(event), gone)
    assert (answer.Status, answer.PhysicalResourceId) == ("SUCCESS", "former")
    assert "does not exist any more" in answer.Reason
    failed = answered(AccessRequest.model_validate({**event, "RequestType": "Create"}), gone)
    assert failed.Status == "FAILED"


@pytest.mark.parametrize("properties", [{}, {**PROPERTIES, "Namespaces": ["A/b"]}, {**PROPERTIES, "Roles": []}])
def test_properties_that_are_none_fail_a_creation_and_no_deletion(api: Api, properties: dict[str, Any]) -> None:
    assert ask(api, "Create", properties).Status == "FAILED"
    assert ask(api, "Delete", properties).Status == "SUCCESS"
    assert api.objects == {}
