"""The stack's HyperPod clusters: whether the functions can get in, and whether a replica could run there.

What EKS says is asked first. Then the cluster's own API, with the credentials of the caller, who needs an access entry
for it: what they may not see is unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from muster.contract.training.clusters import Cluster
from muster.options.hyperpod.client.cluster_api import ClusterAnswer, ClusterApi, ClusterUnreachableError
from muster.options.hyperpod.contract.object_identity import GROUP, IDENTITY_AGENT, OPERATOR, PLURAL, RBAC, VERSION
from muster.options.verify.client.check_outcomes import Check, judged
from muster.options.verify.client.verified_stack import Account, FreeChecks, OfferedChecks, UncheckedError, made

_NAMES = (
    *("cluster", "cluster-add-ons", "cluster-access-entries"),
    *("cluster-api", "cluster-job-kind", "cluster-roles"),
)


class ClusterChecks:
    """The checks of one cluster."""

    def __init__(self, account: Account, cluster: Cluster) -> None:
        self._account, self._cluster = account, cluster
        self._name, self._eks = cluster.name, cluster.eks_cluster
        self.names = tuple(f"{name}-{self._name}" for name in _NAMES)

    def checks(self, _: Account) -> Iterator[Check]:
        """All of them."""
        asked = (self._in_service, self._add_ons, self._entries, self._api, self._job_kind, self._roles)
        for name, one in zip(self.names, asked, strict=True):
            yield from made((name,), partial(one, name))

    @cached_property
    def _described(self) -> Any:
        found = self._account.ask("eks", "describe_cluster", name=self._eks).get("cluster")
        if found is None:
            reason = f"there is no EKS cluster {self._eks}."
            raise UncheckedError(reason)
        return found

    @cached_property
    def _connection(self) -> ClusterApi:
        return ClusterApi(self._account.session, self._described)

    def call(self, method: str, path: str, document: dict[str, object] | None = None) -> ClusterAnswer:
        """The answer of the cluster's own API."""
        if not self._described.get("endpoint"):
            reason = f"{self._eks} has no endpoint yet."
            raise UncheckedError(reason)
        try:
            found = self._connection.call(method, path, document)
        except ClusterUnreachableError as error:
            private = not self._described.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True)
            hint = ", whose endpoint only its VPC reaches," if private else ""
            reason = f"the API of {self._eks}{hint} does not answer: {error}."
            raise UncheckedError(reason, "Call muster verify from where the endpoint can be reached.") from None
        if found.status in {401, 403}:
            reason = f"the API does not let these credentials in ({found.words})."
            command = f"aws eks create-access-entry --cluster-name {self._eks} --principal-arn YOUR-ROLE"
            raise UncheckedError(reason, f"{command}; the functions have entries of their own")
        return found

    def _in_service(self, name: str) -> Iterator[Check]:
        found = self._account.ask("sagemaker", "describe_cluster", ClusterName=self._name)
        described = self._account.ask("eks", "describe_cluster", name=self._eks).get("cluster", {})
        below = found.get("Orchestrator", {}).get("Eks", {}).get("ClusterArn", self._eks).rpartition("/")[2]
        status, own = described.get("status", "missing"), found.get("ClusterStatus", "missing")
        mode = described.get("accessConfig", {}).get("authenticationMode")
        problems = {
            f"{self._name} is {own}": own != "InService",
            f"{self._name} is on the EKS cluster {below}": below != self._eks,
            f"{self._eks} is {status}": status not in {"ACTIVE", "UPDATING"},
            f"{self._eks} takes no access entries ({mode})": described and mode not in {"API", "API_AND_CONFIG_MAP"},
        }
        seen = f"{self._name} is in service on {self._eks}, which takes access entries."
        yield judged(name, seen, problems, "Correct the cluster, or hyperpod_clusters in muster.toml, and deploy.")

    def _add_ons(self, name: str) -> Iterator[Check]:
        problems, cluster = dict[str, object](), self._described["name"]
        for addon in (OPERATOR, IDENTITY_AGENT):
            found = self._account.ask("eks", "describe_addon", clusterName=cluster, addonName=addon)
            status = found.get("addon", {}).get("status", "missing")
            problems[f"the add-on {addon} is {status}"] = status != "ACTIVE"
        remedy = f"aws eks create-addon --cluster-name {cluster} --addon-name NAME"
        yield judged(name, f"{OPERATOR} and {IDENTITY_AGENT} are active.", problems, remedy)

    def _entries(self, name: str) -> Iterator[Check]:
        problems, cluster = dict[str, object](), self._described["name"]
        entries = [wanted for _, _, wanted in self._account.template.of_type("AWS::EKS::AccessEntry")]
        entries = [wanted for wanted in entries if wanted["ClusterName"] == cluster]
        for wanted in entries:
            asked = {"clusterName": cluster, "principalArn": wanted["PrincipalArn"]}
            found = self._account.ask("eks", "describe_access_entry", **asked).get("accessEntry", {})
            listed = self._account.ask("eks", "list_associated_access_policies", **asked) if found else {}
            has = [one["policyArn"] for one in listed.get("associatedAccessPolicies", ())]
            has += found.get("kubernetesGroups", ())
            needs = [one["PolicyArn"] for one in wanted.get("AccessPolicies", ())]
            needs += wanted.get("KubernetesGroups", ())
            lost = [one for one in needs if one not in has]
            problems[f"{wanted['PrincipalArn']} has no access entry, or it lacks {', '.join(lost)}"] = lost or not found
        seen = f"each of the {len(entries)} functions has its access entry."
        yield judged(name, seen, problems, "Deploy the stack again.")

    def _api(self, name: str) -> Iterator[Check]:
        """Every caller whom the cluster knows may ask what they may do, here whether they may read roles."""
        attributes = {"namespace": self._cluster.default_namespace, "verb": "get", "group": RBAC, "resource": "roles"}
        question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.call("POST", path, {**question, "spec": {"resourceAttributes": attributes}})
        problems = {f"the API of {self._eks} answers {answer.words}": answer.status != 201}
        yield judged(name, f"the API of {self._eks} answers and accepts the token.", problems)

    def _job_kind(self, name: str) -> Iterator[Check]:
        kind = f"{PLURAL}.{GROUP}/{VERSION}"
        known = [item.get("name") for item in self.call("GET", f"/apis/{GROUP}/{VERSION}").body.get("resources", ())]
        problems = {f"the cluster does not know {kind}": PLURAL not in known}
        yield judged(name, f"the cluster knows {kind}.", problems, f"Install the add-on {OPERATOR}.")

    def _roles(self, name: str) -> Iterator[Check]:
        problems = dict[str, object]()
        access = [one for _, _, one in self._account.template.of_type("Custom::MusterClusterAccess")]
        access = [one for one in access if one["EksCluster"] == self._eks]
        roles = [(space, role) for one in access for space in one["Namespaces"] for role in one["Roles"]]
        for namespace, item in roles:
            path, place = f"/apis/{RBAC}/v1/namespaces/{namespace}", f"{item['Name']} in {namespace}"
            role, binding = (self.call("GET", f"{path}/{kind}/{item['Name']}") for kind in ("roles", "rolebindings"))
            groups = [subject.get("name") for subject in binding.body.get("subjects", ())]
            problems[f"there is no role {place}, or it has other rules"] = role.body.get("rules") != item["Rules"]
            problems[f"the binding {place} is not of {item['Group']}"] = item["Group"] not in groups
        remedy = "Take the cluster out of hyperpod_clusters, deploy, write it there again, and deploy."
        yield judged(
            name, f"each function has its role in {', '.join(sorted({space for space, _ in roles}))}.", problems, remedy
        )


def _of_clusters(account: Account) -> FreeChecks:
    clusters = (ClusterChecks(account, cluster) for cluster in account.defaults.clusters or ())
    return {of_cluster.names: of_cluster.checks for of_cluster in clusters}


OFFER = OfferedChecks(_of_clusters)
