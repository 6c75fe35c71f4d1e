"""The stack's HyperPod clusters: whether the functions can get in, and whether a replica could run there.

What EKS says is asked first. Then the cluster's own API, with the credentials of the caller, who needs an access entry
for it: what they may not see is unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError as AwsError

from muster.client.aws.cluster_api import ClusterAnswer, ClusterApi, ClusterUnreachableError
from muster.client.aws.error_translation import error_code
from muster.client.verify.asking import allowed
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, judged, unchecked
from muster.contract.hyperpod.clusters import Cluster
from muster.contract.hyperpod.identity import GROUP, PLURAL, VERSION
from muster.contract.spec.stack_defaults import StackDefaults

CLUSTER, ADDONS, ENTRIES, API, JOB_KIND, ROLES = (
    *("cluster", "cluster-add-ons", "cluster-access-entries"),
    *("cluster-api", "cluster-job-kind", "cluster-roles"),
)
NEEDED_ADDONS = ("amazon-sagemaker-hyperpod-training-operator", "eks-pod-identity-agent")
_MODES = {"API", "API_AND_CONFIG_MAP"}
_NOT_FOUND = {"ResourceNotFound", "ResourceNotFoundException"}
_RESOURCE = "Custom::MusterClusterAccess"
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Entry:
    """An access entry that the template makes, and what EKS has of it: its groups and policies; None: no entry."""

    principal: str
    groups: tuple[str, ...]
    policies: tuple[str, ...]
    found_groups: tuple[str, ...] | None
    found_policies: tuple[str, ...] = ()


@dataclass(frozen=True)
class WantedRole:
    """A Role in a namespace, and the API's answers about it and its binding."""

    namespace: str
    name: str
    group: str
    rules: tuple[Mapping[str, Any], ...]
    role: ClusterAnswer | None = None
    binding: ClusterAnswer | None = None


@dataclass(frozen=True)
class ClusterFacts:
    """What is known of one cluster. `api` is why its API could not be asked; empty if it could."""

    cluster: Cluster
    hyperpod: Mapping[str, Any] | None
    eks: Mapping[str, Any] | None
    addons: Mapping[str, str] = field(default_factory=dict)
    """The status of each add-on that is needed, by name."""
    entries: tuple[Entry, ...] = ()
    api: str = ""
    review: ClusterAnswer | None = None
    kind: ClusterAnswer | None = None
    roles: tuple[WantedRole, ...] = ()


def names(cluster: Cluster) -> tuple[str, ...]:
    """The names of the checks of a cluster."""
    return tuple(f"{check}-{cluster.name}" for check in (CLUSTER, ADDONS, ENTRIES, API, JOB_KIND, ROLES))


def clusters_of(account: Account) -> tuple[Cluster, ...]:
    """The clusters of the stack."""
    return StackDefaults.from_json(account.cloud.stack.defaults, "the output ReplicaDefaults").clusters or ()


def gather_cluster(account: Account, cluster: Cluster) -> ClusterFacts:
    """Some calls of EKS, and of the cluster's own API one for each object that the functions need there."""
    eks = account.other("eks")
    with allowed("sagemaker:DescribeCluster"):
        hyperpod = _found(lambda: account.sagemaker.describe_cluster(ClusterName=cluster.name))
    with allowed("eks:DescribeCluster"):
        described = _found(lambda: eks.describe_cluster(name=cluster.eks_cluster)["cluster"])
    if described is None:
        return ClusterFacts(cluster, hyperpod, None)
    facts = ClusterFacts(
        cluster, hyperpod, described, _addons(eks, cluster.eks_cluster), tuple(_entries(account, eks, cluster))
    )
    return _inside(account, facts)


def _found(read: Any) -> Any:
    """What `read` returns; None where there is no such thing."""
    try:
        return read()
    except AwsError as error:
        if error_code(error) in _NOT_FOUND:
            return None
        raise


def _addons(eks: Any, name: str) -> dict[str, str]:
    status = {}
    for addon in NEEDED_ADDONS:
        with allowed("eks:DescribeAddon"):
            found = _found(lambda addon=addon: eks.describe_addon(clusterName=name, addonName=addon)["addon"])
        status[addon] = "missing" if found is None else str(found.get("status"))
    return status


def _entries(account: Account, eks: Any, cluster: Cluster) -> Iterator[Entry]:
    for _, _, wanted in account.template.of_type("AWS::EKS::AccessEntry"):
        if wanted["ClusterName"] != cluster.eks_cluster:
            continue
        asked = {"clusterName": cluster.eks_cluster, "principalArn": wanted["PrincipalArn"]}
        with allowed("eks:DescribeAccessEntry"):
            found = _found(lambda asked=asked: eks.describe_access_entry(**asked)["accessEntry"])
        policies: tuple[str, ...] = ()
        if found is not None and wanted.get("AccessPolicies"):
            with allowed("eks:ListAssociatedAccessPolicies"):
                listed = eks.list_associated_access_policies(**asked)["associatedAccessPolicies"]
            policies = tuple(item["policyArn"] for item in listed)
        yield Entry(
            principal=wanted["PrincipalArn"],
            groups=tuple(wanted.get("KubernetesGroups", ())),
            policies=tuple(item["PolicyArn"] for item in wanted.get("AccessPolicies", ())),
            found_groups=None if found is None else tuple(found.get("kubernetesGroups", ())),
            found_policies=policies,
        )


def _inside(account: Account, facts: ClusterFacts) -> ClusterFacts:
    """The facts with what the cluster's own API says."""
    cluster, described = facts.cluster, facts.eks or {}
    if not described.get("endpoint"):
        return _without_api(facts, f"{cluster.eks_cluster} has no endpoint yet")
    try:
        api = ClusterApi(account.session, described)
        review = api.call("POST", _REVIEW, _question(cluster.default_namespace))
        if review.status != 201:
            return _without_api(facts, "", review)
        kind = api.call("GET", f"/apis/{GROUP}/{VERSION}")
        roles = tuple(_role(api, wanted) for wanted in _wanted_roles(account, cluster))
    except ClusterUnreachableError as error:
        private = not described.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True)
        hint = ", whose endpoint only its VPC reaches" if private else ""
        return _without_api(facts, f"the API of {cluster.eks_cluster}{hint} does not answer: {error}")
    return ClusterFacts(cluster, facts.hyperpod, facts.eks, facts.addons, facts.entries, "", review, kind, roles)


def _without_api(facts: ClusterFacts, reason: str, review: ClusterAnswer | None = None) -> ClusterFacts:
    return ClusterFacts(facts.cluster, facts.hyperpod, facts.eks, facts.addons, facts.entries, reason, review)


def _question(namespace: str) -> dict[str, object]:
    """Whether the caller may read roles: every caller whom the cluster knows may ask what they may do."""
    attributes = {"namespace": namespace, "verb": "get", "group": "rbac.authorization.k8s.io", "resource": "roles"}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _wanted_roles(account: Account, cluster: Cluster) -> Iterator[WantedRole]:
    for _, _, wanted in account.template.of_type(_RESOURCE):
        if wanted["EksCluster"] != cluster.eks_cluster:
            continue
        for namespace in wanted["Namespaces"]:
            for role in wanted["Roles"]:
                yield WantedRole(namespace, role["Name"], role["Group"], tuple(role["Rules"]))


def _role(api: ClusterApi, wanted: WantedRole) -> WantedRole:
    role, binding = (
        api.call("GET", f"{_RBAC}/{wanted.namespace}/{kind}/{wanted.name}") for kind in ("roles", "rolebindings")
    )
    return WantedRole(wanted.namespace, wanted.name, wanted.group, wanted.rules, role, binding)


def judge_cluster(facts: ClusterFacts) -> Iterator[Check]:
    """All checks of one cluster."""
    check, addons, entries, api, kind, roles = names(facts.cluster)
    yield judged(
        check,
        _cluster_problems(facts),
        f"{facts.cluster.name} is in service on {facts.cluster.eks_cluster}, which takes access entries.",
        "Correct the cluster, or hyperpod_clusters in muster.toml, and deploy the stack again.",
    )
    if facts.eks is None:
        reason = f"there is no EKS cluster {facts.cluster.eks_cluster}"
        yield from (unchecked(name, reason) for name in (addons, entries, api, kind, roles))
        return
    wrong = [f"the add-on {name} is {status}" for name, status in facts.addons.items() if status != "ACTIVE"]
    yield judged(
        addons,
        wrong,
        f"{' and '.join(facts.addons)} are active.",
        f"aws eks create-addon --cluster-name {facts.cluster.eks_cluster} --addon-name NAME",
    )
    yield judged(
        entries,
        [problem for entry in facts.entries for problem in _entry_problems(entry)],
        f"each of the {len(facts.entries)} functions has its access entry.",
        "Deploy the stack again.",
    )
    yield _api_check(facts, api)
    yield _kind_check(facts, kind)
    yield _roles_check(facts, roles)


def _cluster_problems(facts: ClusterFacts) -> Iterator[str]:
    cluster = facts.cluster
    if facts.hyperpod is None:
        yield f"there is no HyperPod cluster {cluster.name}"
    elif facts.hyperpod.get("ClusterStatus") != "InService":
        yield f"{cluster.name} is {facts.hyperpod.get('ClusterStatus')}"
    orchestrator = (facts.hyperpod or {}).get("Orchestrator", {}).get("Eks", {}).get("ClusterArn", "")
    if orchestrator and orchestrator.rpartition("/")[2] != cluster.eks_cluster:
        yield f"{cluster.name} is on the EKS cluster {orchestrator.rpartition('/')[2]}"
    if facts.eks is None:
        yield f"there is no EKS cluster {cluster.eks_cluster}"
        return
    if facts.eks.get("status") not in {"ACTIVE", "UPDATING"}:
        yield f"{cluster.eks_cluster} is {facts.eks.get('status')}"
    mode = facts.eks.get("accessConfig", {}).get("authenticationMode")
    if mode not in _MODES:
        yield f"{cluster.eks_cluster} takes no access entries ({mode})"


def _entry_problems(entry: Entry) -> Iterator[str]:
    if entry.found_groups is None:
        yield f"{entry.principal} has no access entry"
        return
    if missing := [group for group in entry.groups if group not in entry.found_groups]:
        yield f"the access entry of {entry.principal} lacks the group {', '.join(missing)}"
    if missing := [policy for policy in entry.policies if policy not in entry.found_policies]:
        yield f"the access entry of {entry.principal} lacks {', '.join(missing)}"


def _api_check(facts: ClusterFacts, name: str) -> Check:
    if facts.api:
        return unchecked(name, f"{facts.api}.", "Call muster verify from where the endpoint can be reached.")
    review = facts.review
    if review is None or review.status != 201:
        words = "no answer" if review is None else review.words
        remedy = (
            f"aws eks create-access-entry --cluster-name {facts.cluster.eks_cluster} --principal-arn YOUR-ROLE; the "
            "functions have entries of their own"
        )
        return unchecked(name, f"the API answers, and does not let these credentials in ({words}).", remedy)
    return judged(name, [], f"the API of {facts.cluster.eks_cluster} answers and accepts the token.")


def _kind_check(facts: ClusterFacts, name: str) -> Check:
    if facts.kind is None or facts.kind.status in {401, 403}:
        return unchecked(name, "these credentials cannot ask the cluster.")
    known = [item.get("name") for item in facts.kind.body.get("resources", ())]
    missing = facts.kind.status != 200 or PLURAL not in known
    problems = [f"the cluster does not know {PLURAL}.{GROUP}/{VERSION}"] if missing else []
    remedy = "Install the add-on amazon-sagemaker-hyperpod-training-operator."
    return judged(name, problems, f"the cluster knows {PLURAL}.{GROUP}/{VERSION}.", remedy)


def _roles_check(facts: ClusterFacts, name: str) -> Check:
    if not facts.roles:
        return unchecked(name, "these credentials cannot ask the cluster.")
    answers = [answer for wanted in facts.roles for answer in (wanted.role, wanted.binding) if answer is not None]
    if any(answer.status in {401, 403} for answer in answers):
        remedy = "Use credentials that may read roles and rolebindings in the namespaces of the settings."
        return unchecked(name, "these credentials may not read the roles in the cluster.", remedy)
    problems = [problem for wanted in facts.roles for problem in _role_problems(wanted)]
    places = ", ".join(dict.fromkeys(wanted.namespace for wanted in facts.roles))
    remedy = "Take the cluster out of hyperpod_clusters, deploy, write it there again, and deploy."
    return judged(name, problems, f"each function has its role in {places}.", remedy)


def _role_problems(wanted: WantedRole) -> Iterator[str]:
    place = f"{wanted.name} in {wanted.namespace}"
    if wanted.role is None or wanted.role.status != 200:
        yield f"there is no role {place}"
    elif list(wanted.role.body.get("rules", ())) != [dict(rule) for rule in wanted.rules]:
        yield f"the role {place} has other rules"
    if wanted.binding is None or wanted.binding.status != 200:
        yield f"there is no binding {place}"
    elif wanted.group not in [subject.get("name") for subject in wanted.binding.body.get("subjects", ())]:
        yield f"the binding {place} is not of {wanted.group}"
