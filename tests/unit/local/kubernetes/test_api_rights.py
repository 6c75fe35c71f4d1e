"""Who may do what at the embedded Kubernetes API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kubernetes_api import JOBS, PODS, RBAC, ApiClient, job, pod

ROLES = f"{RBAC}/namespaces/team/roles"
BINDINGS = f"{RBAC}/namespaces/team/rolebindings"


@pytest.fixture
def api() -> ApiClient:
    return ApiClient()


def user(api: ApiClient, token: str | None) -> ApiClient:
    return ApiClient(api.store, token=token)


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, target: str, kind: str = "Role", group: str = "developers") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": target},
        "subjects": [{"kind": "Group", "name": group}],
    }


ON_JOBS = {"apiGroups": ["sagemaker.amazonaws.com"], "resources": ["hyperpodpytorchjobs"], "verbs": ["create", "get"]}


def test_a_right_comes_from_a_role_that_is_bound(api: ApiClient) -> None:
    developer = user(api, "developer")
    refused = developer.call("POST", JOBS, job())
    assert (refused.code, refused.document["reason"]) == (403, "Forbidden")
    assert refused.document["message"] == (
        'hyperpodpytorchjobs.sagemaker.amazonaws.com is forbidden: User "developer" cannot create resource '
        '"hyperpodpytorchjobs" in API group "sagemaker.amazonaws.com" in the namespace "team"'
    )
    assert api.call("POST", ROLES, role("jobs", ON_JOBS)).code == 201
    assert developer.call("POST", JOBS, job()).code == 403
    assert api.call("POST", BINDINGS, binding("jobs", "jobs")).code == 201
    assert developer.call("POST", JOBS, job()).code == 201
    assert developer.call("GET", f"{JOBS}/train").code == 200
    refused = developer.call("DELETE", f"{JOBS}/train")
    assert refused.document["message"].startswith('hyperpodpytorchjobs.sagemaker.amazonaws.com "train" is forbidden:')
    assert developer.call("GET", JOBS).code == 403
    assert developer.call("GET", f"{JOBS}?watch=true").code == 403
    other = JOBS.replace("/team/", "/default/")
    assert developer.call("POST", other, job()).code == 403
    everywhere = "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs"
    assert developer.call("GET", everywhere).document["message"].endswith("at the cluster scope")


def test_a_role_names_objects_and_subresources(api: ApiClient) -> None:
    for name in ("mine", "other"):
        api.call("POST", PODS, pod(name))
    rules = (
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["mine"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    )
    api.call("POST", ROLES, role("one", *rules))
    api.call("POST", BINDINGS, binding("one", "one"))
    developer = user(api, "developer")
    assert developer.call("GET", f"{PODS}/mine").code == 200
    assert developer.call("GET", f"{PODS}/other").code == 403
    assert developer.call("GET", PODS).code == 403
    assert developer.call("GET", f"{PODS}?fieldSelector=metadata.name%3Dmine").code == 200
    assert developer.call("GET", f"{PODS}/other/log").code == 400  # allowed, and there is none yet
    assert developer.call("GET", f"{PODS}/mine/status").code == 403


def test_only_those_who_have_a_right_can_grant_it(api: ApiClient) -> None:
    owner = user(api, "owner")
    refused = owner.call("POST", ROLES, role("jobs", ON_JOBS))
    assert refused.code == 403
    assert refused.document["message"] == (
        'roles.rbac.authorization.k8s.io "jobs" is forbidden: user "owner" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:["sagemaker.amazonaws.com"], Resources:["hyperpodpytorchjobs"], Verbs:["create", "get"]}'
    )
    api.call("POST", ROLES, role("jobs", ON_JOBS))
    assert owner.call("POST", BINDINGS, binding("jobs", "jobs")).code == 403
    # A right of an access policy is one that the owner has, and still none that can be granted.
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    assert owner.call("GET", PODS).code == 200
    assert owner.call("POST", ROLES, role("pods", pods)).code == 403
    api.call("POST", f"{RBAC}/clusterroles", role("grant", pods))
    cluster_binding = binding("grant", "grant", "ClusterRole", "system:authenticated")
    assert api.call("POST", f"{RBAC}/clusterrolebindings", cluster_binding).code == 201
    assert owner.call("POST", ROLES, role("pods", pods)).code == 201
    wider = {**pods, "verbs": ["get", "delete"]}
    patched = owner.call("PATCH", f"{ROLES}/pods", {"rules": [wider]}, content_type="application/merge-patch+json")
    assert patched.code == 403
    assert 'Verbs:["delete"]' in patched.document["message"]


def test_a_binding_keeps_its_role(api: ApiClient) -> None:
    api.call("POST", ROLES, role("jobs", ON_JOBS))
    api.call("POST", BINDINGS, binding("jobs", "jobs"))
    changed = {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}
    refused = api.call("PATCH", f"{BINDINGS}/jobs", changed, content_type="application/merge-patch+json")
    assert refused.code == 422
    assert "cannot change roleRef" in refused.document["message"]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"apiGroups": [""], "resources": ["pods"]}, "rules[0].verbs"),
        ({"verbs": ["get"], "resources": ["pods"]}, "rules[0].apiGroups"),
        ({"verbs": ["get"], "apiGroups": [""]}, "rules[0].resources"),
        ({"verbs": ["get"], "nonResourceURLs": ["/x"]}, "rules[0].nonResourceURLs"),
    ],
)
def test_a_rule_that_is_none_is_refused(api: ApiClient, rule: dict[str, Any], field: str) -> None:
    refused = api.call("POST", ROLES, role("bad", rule))
    assert refused.code == 422
    assert refused.document["details"]["causes"][0]["field"] == field


@pytest.mark.parametrize("token", ["viewer", "owner"])
def test_the_policies_of_eks_do_not_know_custom_resources(api: ApiClient, token: str) -> None:
    assert user(api, token).call("GET", PODS).code == 200
    assert user(api, token).call("GET", JOBS).code == 403


def test_a_policy_holds_in_its_namespaces(api: ApiClient) -> None:
    owner = user(api, "owner")
    assert owner.call("POST", PODS, pod("worker")).code == 201
    assert owner.call("POST", PODS.replace("/team/", "/default/"), pod("worker")).code == 403
    assert owner.call("GET", "/api/v1/nodes").code == 403


def test_who_is_not_known_gets_nothing(api: ApiClient) -> None:
    unknown = user(api, "nonsense").call("GET", PODS)
    assert (unknown.code, unknown.document["reason"]) == (401, "Unauthorized")
    assert user(api, "nonsense").call("GET", "/version").code == 401
    anonymous = user(api, None)
    assert anonymous.call("GET", "/version").code == 200
    refused = anonymous.call("GET", "/api")
    assert refused.document["message"] == 'forbidden: User "system:anonymous" cannot get path "/api"'
    assert api.call("GET", PODS, authorization="Basic YTpi").code == 401


def test_rights_come_before_everything_else(api: ApiClient) -> None:
    developer = user(api, "developer")
    assert developer.call("POST", JOBS, b"{").code == 403
    assert developer.call("GET", "/apis/nothing.example.com/v1/namespaces/team/things").code == 403
    assert developer.call("GET", f"{JOBS}/none").code == 403


def test_users_can_ask_what_they_may_do(api: ApiClient) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def allowed(token: str, **attributes: str) -> Any:
        about = {"spec": {"resourceAttributes": attributes}}
        return user(api, token).call("POST", path, about).document["status"]["allowed"]

    asked = {"verb": "create", "group": "sagemaker.amazonaws.com", "resource": "hyperpodpytorchjobs"}
    assert allowed("admin", **asked, namespace="team") is True
    assert allowed("developer", **asked, namespace="team") is False
    api.call("POST", ROLES, role("jobs", ON_JOBS))
    api.call("POST", BINDINGS, binding("jobs", "jobs"))
    assert allowed("developer", **asked, namespace="team") is True
    assert allowed("developer", **asked, namespace="default") is False
    assert user(api, "developer").call("POST", path, {"spec": {}}).code == 400
    rules = {"spec": {"namespace": "team"}}
    listed = user(api, "developer").call("POST", path.replace("access", "rules"), rules).document["status"]
    assert {"verbs": ["create", "get"], "apiGroups": ["sagemaker.amazonaws.com"]}.items() <= {
        key: value
        for row in listed["resourceRules"]
        if "sagemaker.amazonaws.com" in row["apiGroups"]
        for key, value in row.items()
    }.items()
    whoami = user(api, "developer").call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert whoami.document["status"]["userInfo"]["groups"] == ["system:authenticated", "developers"]
