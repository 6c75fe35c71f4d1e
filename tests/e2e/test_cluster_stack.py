"""A stack with a HyperPod cluster, deployed to the embedded cloud: its functions get in, and a deletion never hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from bench.deployed_stack import Stack, open_stack
from muster import Muster
from muster.client.aws.cluster_api import ClusterApi
from muster.client.verify import cluster_checks
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, Outcome
from muster.local.hyperpod.cluster_settings import ClusterSettings
from tests.support.waiting import wait_until

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with open_stack(ClusterSettings(nodes=1, node_type="ml.m5.xlarge")) as stack:
        yield stack


@pytest.fixture
def account(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Account:
    for name, value in stack.cloud.environment(os.environ).items():
        monkeypatch.setenv(name, value)
    return Account(Muster()._cloud)


def checks(account: Account) -> dict[str, Check]:
    [cluster] = cluster_checks.clusters_of(account)
    found = cluster_checks.judge_cluster(cluster_checks.gather_cluster(account, cluster))
    return {check.name.removesuffix(f"-{cluster.name}"): check for check in found}


def failures(account: Account) -> list[str]:
    return [name for name, check in checks(account).items() if check.outcome is not Outcome.OK]


def roles(api: ClusterApi, namespace: str) -> list[str]:
    found = api.call("GET", f"{RBAC}/{namespace}/roles").body["items"]
    return [item["metadata"]["name"] for item in found if "muster/stack" in item["metadata"].get("labels", {})]


def test_the_deployed_functions_are_let_in_and_what_is_taken_from_them_is_found(account: Account, stack: Stack) -> None:
    assert failures(account) == []
    [cluster] = cluster_checks.clusters_of(account)
    eks: Any = stack.cloud.client("eks")
    api = ClusterApi(account.session, eks.describe_cluster(name=cluster.eks_cluster)["cluster"])
    namespace = cluster.default_namespace
    made = roles(api, namespace)
    assert len(made) == 7
    assert api.call("DELETE", f"{RBAC}/{namespace}/rolebindings/{made[0]}").status == 200
    assert failures(account) == ["cluster-roles"]
    [*_, entry] = [
        wanted for _, _, wanted in account.template.of_type("AWS::EKS::AccessEntry") if "KubernetesGroups" in wanted
    ]
    eks.delete_access_entry(clusterName=cluster.eks_cluster, principalArn=entry["PrincipalArn"])
    assert failures(account) == ["cluster-access-entries", "cluster-roles"]
    assert entry["PrincipalArn"] in checks(account)["cluster-access-entries"].seen


def test_the_deletion_of_the_stack_takes_the_roles_and_does_not_wait_for_what_is_gone(
    account: Account, stack: Stack
) -> None:
    [cluster] = cluster_checks.clusters_of(account)
    eks: Any = stack.cloud.client("eks")
    api = ClusterApi(account.session, eks.describe_cluster(name=cluster.eks_cluster)["cluster"])
    formation: Any = stack.cloud.client("cloudformation")
    formation.delete_stack(StackName="Muster")
    wait_until("the end of the deletion", partial(_is_deleted, formation))
    assert roles(api, cluster.default_namespace) == []
    left = [arn for arn in eks.list_access_entries(clusterName=cluster.eks_cluster)["accessEntries"] if "Muster" in arn]
    assert left == []


def _is_deleted(formation: Any) -> bool:
    found = formation.list_stacks()["StackSummaries"]
    return all(item["StackStatus"] == "DELETE_COMPLETE" for item in found if item["StackName"] == "Muster")
