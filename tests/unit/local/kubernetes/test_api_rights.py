"""Who may do what at the embedded Kubernetes API."""

from typing import Any

import pytest

from muster.options.hyperpod.local.kubernetes.served_resources import PODS as PODS_KIND
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


def binding(name: str, target: str, group: str = "developers") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": target},
        "subjects": [{"kind": "Group", "name": group}],
    }


ON_JOBS = {"apiGroups": ["sagemaker.amazonaws.com"], "resources": ["hyperpodpytorchjobs"], "verbs": ["create", "get"]}


def test_a_right_comes_from_a_role_that_is_bound(api: ApiClient) -> None:
    developer = user(api, "developer")
    refused = developer.call("POST", JOBS, job())
    assert (refused.code, refused.document["reason"]) == (403, "Forbidden")
    assert 'User "developer" cannot create' in refused.document["message"]
    assert api.call("POST", ROLES, role("jobs", ON_JOBS)).code == 201
    assert developer.call("POST", JOBS, job()).code == 403
    assert api.call("POST", BINDINGS, binding("jobs", "jobs")).code == 201
    assert developer.call("POST", JOBS, job()).code == 201
    assert developer.call("GET", f"{JOBS}/train").code == 200
    assert developer.call("DELETE", f"{JOBS}/train").code == 403
    assert developer.call("GET", JOBS).code == 403
    # Rights come before everything else.
    assert developer.call("POST", JOBS.replace("/team/", "/default/"), b"{").code == 403
    everywhere = "/apis/sagemaker.amazonaws.com/v1/hyperpodpytorchjobs"
    assert developer.call("GET", everywhere).document["message"].endswith("at the cluster scope")


def test_a_role_names_objects_and_subresources(api: ApiClient) -> None:
    for name in ("mine", "other"):
        api.store.create(PODS_KIND, pod(name), "team")
    rule = {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["mine"], "verbs": ["get", "list"]}
    api.call("POST", ROLES, role("one", rule))
    api.call("POST", BINDINGS, binding("one", "one"))
    developer = user(api, "developer")
    assert developer.call("GET", f"{PODS}/mine").code == 200
    for path in (f"{PODS}/other", PODS, f"{PODS}/mine/status"):
        assert developer.call("GET", path).code == 403, path


def test_rights_are_granted_by_those_alone_who_may_escalate_or_bind(api: ApiClient) -> None:
    owner, pods = user(api, "owner"), {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    refused = owner.call("POST", ROLES, role("pods", pods))
    assert refused.code == 403
    assert 'may not escalate the role "pods"' in refused.document["message"]
    api.call("POST", ROLES, role("pods", pods))
    assert owner.call("POST", BINDINGS, binding("pods", "pods")).code == 403
    # A right of an access policy is one that the owner has, and still none that can be granted.
    assert owner.call("GET", PODS).code == 200
    bind = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["bind"]}
    api.call("POST", ROLES, role("binder", {**bind, "resourceNames": ["pods"]}))
    assert api.call("POST", BINDINGS, binding("binder", "binder", group="system:authenticated")).code == 201
    assert owner.call("POST", BINDINGS, binding("pods", "pods")).code == 201
    assert owner.call("POST", BINDINGS, binding("self", "binder")).code == 403


def test_a_rule_that_is_none_is_refused(api: ApiClient) -> None:
    for rule, field in (
        ({"apiGroups": [""], "resources": ["pods"]}, "rules[0].verbs"),
        ({"verbs": ["get"], "resources": ["pods"]}, "rules[0].apiGroups"),
        ({"verbs": [], "apiGroups": [""], "resources": ["pods"]}, "rules[0].verbs"),
        ({"verbs": ["get"], "apiGroups": [""]}, "rules[0].resources"),
    ):
        refused = api.call("POST", ROLES, role("bad", rule))
        assert refused.code == 422, rule
        assert refused.document["details"]["causes"][0]["field"] == field
    assert api.call("POST", ROLES, role("bad", {**ON_JOBS, "nonResourceURLs": ["/x"]})).code == 400


def test_a_binding_is_of_a_role_of_its_namespace_to_groups(api: ApiClient) -> None:
    right = binding("one", "one")
    for wrong in (
        {"roleRef": {**right["roleRef"], "kind": "ClusterRole"}},
        {"roleRef": {**right["roleRef"], "apiGroup": "other"}},
        {"roleRef": {"kind": "Role"}},
        {"subjects": [{"kind": "ServiceAccount", "name": "run", "namespace": "team"}]},
        {"subjects": [{"kind": "Group"}]},
    ):
        assert api.call("POST", BINDINGS, {**right, **wrong}).code == 422, wrong
    assert api.call("POST", BINDINGS, right).code == 201


def test_a_policy_holds_in_its_namespaces(api: ApiClient) -> None:
    for token in ("viewer", "owner"):
        assert user(api, token).call("GET", PODS).code == 200
        assert user(api, token).call("GET", JOBS).code == 403
    owner = user(api, "owner")
    accounts, account = "/api/v1/namespaces/team/serviceaccounts", {"metadata": {"name": "run"}}
    assert owner.call("POST", accounts, account).code == 201
    assert owner.call("POST", accounts.replace("/team/", "/default/"), account).code == 403
    assert owner.call("GET", "/api/v1/nodes").code == 403


def test_who_is_not_known_gets_nothing(api: ApiClient) -> None:
    unknown = user(api, "nonsense").call("GET", PODS)
    assert (unknown.code, unknown.document["reason"]) == (401, "Unauthorized")
    assert user(api, "nonsense").call("GET", "/version").code == 401
    anonymous = user(api, None)
    assert anonymous.call("GET", "/version").code == 200
    assert "system:anonymous" in anonymous.call("GET", "/api").document["message"]
    assert api.call("GET", PODS, authorization="Basic YTpi").code == 401


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
