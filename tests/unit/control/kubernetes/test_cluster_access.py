"""The roles of functions in a cluster: made once however often it is asked for, and never a hanging stack."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from muster.control.runtime import clock
from muster.options.hyperpod.control.api import Connection, KubernetesApi
from muster.options.hyperpod.control.cluster_access import (
    CREATE_SECONDS,
    DELETE_SECONDS,
    AccessAnswer,
    AccessRequest,
    answered,
)
from muster.options.hyperpod.control.cluster_errors import ClusterGoneError
from muster.options.hyperpod.control.cluster_https import HttpAnswer
from muster.options.hyperpod.control.namespace_roles import NamespaceRoles
from muster.options.hyperpod.local.kubernetes.served_resources import ROLE_BINDINGS, ROLES
from tests.memory.clock import VirtualClock
from tests.support.kubernetes_api import ApiClient, cluster_store

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
NAME = PROPERTIES["Roles"][0]["Name"]
RULES = PROPERTIES["Roles"][0]["Rules"]


class Api:
    """The API of an embedded cluster. `refusals` are statuses that come before it answers; None: no answer."""

    def __init__(self) -> None:
        self.store = cluster_store()
        for name in PROPERTIES["Namespaces"]:
            self.store.add_namespace(name)
        self._client = ApiClient(self.store)
        self.refusals: list[int | None] = []
        self.denied: set[str] = set()

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        status = self.refusals.pop(0) if self.refusals else 403 if path.split("/")[5] in self.denied else 0
        if status is None:
            message = "connection refused"
            raise ConnectionError(message)
        if status:
            return HttpAnswer(status, {}, json.dumps({"reason": "Refused", "message": "not yet"}).encode())
        given = {name.lower().replace("-", "_"): value for name, value in headers.items()}
        reply = self._client.call(method, path, body, **given)
        return HttpAnswer(reply.code, reply.headers, reply.body)

    def placed(self) -> set[tuple[str, str, str]]:
        """Kinds, namespaces and names of the roles and bindings."""
        found = [*self.store.list(ROLES), *self.store.list(ROLE_BINDINGS)]
        return {(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in found}


@pytest.fixture
def api() -> Iterator[Api]:
    with clock.replaced(VirtualClock()):
        yield Api()


def request(kind: str, properties: Mapping[str, Any] = PROPERTIES, **more: str) -> AccessRequest:
    """What CloudFormation sends."""
    event = {
        "RequestType": kind,
        "ResponseURL": "https://bucket.example/answer?signature=x",
        "StackId": "stack",
        "RequestId": "1",
        "LogicalResourceId": "Roles",
        "ResourceProperties": properties,
        **more,
    }
    return AccessRequest.model_validate(event)


def ask(api: Api, kind: str, properties: Mapping[str, Any] = PROPERTIES, **more: str) -> AccessAnswer:
    def open_api(roles: NamespaceRoles) -> KubernetesApi:
        return KubernetesApi(roles.cluster, lambda: Connection(api, "here"), lambda: "admin")

    return answered(request(kind, properties, **more), open_api)


def test_each_namespace_gets_a_role_and_its_binding_to_the_group_of_the_function(api: Api) -> None:
    # The cluster does not know the function's role at once.
    api.refusals = [401] * 9 + [403] * 9
    answer = ask(api, "Create")
    assert (answer.Status, answer.Reason) == ("SUCCESS", "1 roles in team-a, team-b")
    assert api.placed() == {(kind, place, NAME) for kind in ("Role", "RoleBinding") for place in ("team-a", "team-b")}
    role, binding = api.store.get(ROLES, NAME, "team-a"), api.store.get(ROLE_BINDINGS, NAME, "team-a")
    assert role["rules"] == RULES
    assert role["metadata"]["labels"]["muster/stack"] == "muster"
    assert binding["roleRef"]["name"] == NAME
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("Group", "muster:muster:plan:0a1b2c3d")]
    # A repeated call changes nothing, and has the same ID.
    before = api.store.list(ROLES), api.store.list(ROLE_BINDINGS)
    for kind in ("Create", "Update"):
        assert ask(api, kind, PhysicalResourceId=answer.PhysicalResourceId) == answer
    assert (api.store.list(ROLES), api.store.list(ROLE_BINDINGS)) == before


def test_what_a_person_has_changed_is_put_right(api: Api) -> None:
    ask(api, "Create")
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    role = api.store.get(ROLES, NAME, "team-a")
    api.store.change(ROLES, role["metadata"], lambda found: found.update(rules=everything))
    assert ask(api, "Update").Status == "SUCCESS"
    assert api.store.get(ROLES, NAME, "team-a")["rules"] == RULES


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
    assert {one for one in api.placed() if one[1] == "team-b" or one[2] == "muster-new"} == {
        ("Role", "team-b", "muster-new"),
        ("RoleBinding", "team-b", "muster-new"),
    }


def test_a_cluster_that_never_lets_the_function_in_is_said_within_its_time(api: Api) -> None:
    api.denied = {"team-a"}
    begin = clock.monotonic()
    answer = ask(api, "Create")
    assert answer.Status == "FAILED"
    assert "403" in answer.Reason
    assert clock.monotonic() - begin <= CREATE_SECONDS + 5


def test_a_missing_namespace_is_named_with_what_to_do(api: Api) -> None:
    answer = ask(api, "Create", {**PROPERTIES, "Namespaces": ["team-a", "team-c"]})
    assert answer.Status == "FAILED"
    assert "kubectl create namespace team-c" in answer.Reason


def test_a_deletion_removes_everything_and_may_be_repeated(api: Api) -> None:
    made = ask(api, "Create")
    for _ in range(2):
        answer = ask(api, "Delete", PhysicalResourceId=made.PhysicalResourceId)
        assert (answer.Status, answer.Reason) == ("SUCCESS", "removed")
        assert answer.PhysicalResourceId == made.PhysicalResourceId
    assert api.placed() == set()


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

    answer = answered(request("Delete", PhysicalResourceId="former"), gone)
    assert (answer.Status, answer.PhysicalResourceId) == ("SUCCESS", "former")
    assert "does not exist any more" in answer.Reason
    assert answered(request("Create"), gone).Status == "FAILED"


def test_properties_that_are_none_fail_a_creation_and_no_deletion(api: Api) -> None:
    for properties in ({}, {**PROPERTIES, "Namespaces": ["A/b"]}, {**PROPERTIES, "Roles": []}):
        assert ask(api, "Create", properties).Status == "FAILED", properties
        assert ask(api, "Delete", properties).Status == "SUCCESS", properties
    assert api.placed() == set()
