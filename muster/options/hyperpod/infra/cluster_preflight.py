"""What of a HyperPod cluster would make a deployment fail, or its replicas wait for ever, as far as AWS's APIs say it.

What is inside a cluster (namespaces, the operator's state) is for those to see who have access to it: `muster verify`
looks there with the functions' own rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from muster.contract.errors import Problem, StatedProblem
from muster.infra.settings.cluster_tables import ClusterTable
from muster.options.hyperpod.contract.object_identity import IDENTITY_AGENT, OPERATOR

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account

_MODES = {"API", "API_AND_CONFIG_MAP"}
_READY = {"ACTIVE", "UPDATING"}


class Unseen(Enum):
    """Why a cluster is not described."""

    ABSENT = "there is none"
    DENIED = "the caller may not ask"


@dataclass(frozen=True)
class ClusterState:
    """What EKS and SageMaker say of one cluster, as far as the caller may see it.

    `hyperpod` is DescribeCluster of SageMaker, `eks` that of EKS, `addons` the names of the EKS cluster's add-ons; None
    where they are not known.
    """

    hyperpod: Mapping[str, Any] | Unseen
    eks: Mapping[str, Any] | Unseen
    addons: frozenset[str] | None


def cluster_state(account: Account, name: str, eks_cluster: str) -> ClusterState:
    """A HyperPod cluster and the EKS cluster of the settings, as far as the caller may see them."""
    sagemaker, client = account.client("sagemaker"), account.client("eks")
    hyperpod = _described(account, lambda: sagemaker.describe_cluster(ClusterName=name))
    eks = _described(account, lambda: client.describe_cluster(name=eks_cluster)["cluster"])
    addons = None
    if not isinstance(eks, Unseen):
        pages = client.get_paginator("list_addons")
        addons, _ = account.seen(lambda: pages.paginate(clusterName=eks_cluster).build_full_result())
    return ClusterState(hyperpod, eks, None if addons is None else frozenset(addons["addons"]))


def _described(account: Account, read: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | Unseen:
    found: Mapping[str, Any] | None
    found, may_ask = account.seen(read)
    if found is not None:
        return found
    return Unseen.ABSENT if may_ask else Unseen.DENIED


def cluster_problems(name: str, table: ClusterTable, state: ClusterState) -> Iterator[Problem]:
    """What forbids the deployment."""
    place = f"hyperpod_clusters.{name}"
    if state.hyperpod is Unseen.ABSENT:
        remedy = "write the name of a cluster of this account and region (aws sagemaker list-clusters)"
        yield StatedProblem(place, f"this account has no HyperPod cluster {name} in this region", remedy)
    elif state.hyperpod is not Unseen.DENIED:
        found = state.hyperpod.get("Orchestrator", {}).get("Eks", {}).get("ClusterArn", "").rpartition("/")[2]
        if not found:
            yield StatedProblem(place, f"{name} is not orchestrated by EKS", "name a cluster with an EKS orchestrator")
        elif found != table.eks_cluster:
            yield Problem(f"{place}.eks_cluster", repr(table.eks_cluster), f"write {found}", f"{name} is on {found}")
    if state.eks is Unseen.ABSENT:
        remedy = "write the name of an EKS cluster of this account and region (aws eks list-clusters)"
        yield StatedProblem(f"{place}.eks_cluster", f"this account has no EKS cluster {table.eks_cluster}", remedy)
    if isinstance(state.eks, Unseen):
        return
    yield from _eks_problems(place, table, state.eks)
    if state.addons is not None:
        for addon in (OPERATOR, IDENTITY_AGENT):
            if addon not in state.addons:
                remedy = f"run: aws eks create-addon --cluster-name {table.eks_cluster} --addon-name {addon}"
                yield StatedProblem(f"{place}.eks_cluster", f"{table.eks_cluster} lacks the add-on {addon}", remedy)


def _eks_problems(place: str, table: ClusterTable, eks: Mapping[str, Any]) -> Iterator[Problem]:
    status = eks.get("status")
    if status not in _READY:
        yield StatedProblem(f"{place}.eks_cluster", f"{table.eks_cluster} is {status}", "wait until it is ACTIVE")
    mode = eks.get("accessConfig", {}).get("authenticationMode")
    if mode not in _MODES:
        remedy = (
            f"run: aws eks update-cluster-config --name {table.eks_cluster} "
            "--access-config authenticationMode=API_AND_CONFIG_MAP"
        )
        yield StatedProblem(f"{place}.eks_cluster", f"{table.eks_cluster} takes no access entries ({mode})", remedy)
    network = eks.get("resourcesVpcConfig", {})
    if not network.get("endpointPublicAccess", True) and not table.is_private:
        remedy = "set subnets and security_group_ids of its VPC, from which its endpoint can be reached"
        yield StatedProblem(f"{place}.subnets", f"missing, and the endpoint of {table.eks_cluster} is private", remedy)
    ranges = network.get("publicAccessCidrs") or ["0.0.0.0/0"]
    if network.get("endpointPublicAccess", True) and "0.0.0.0/0" not in ranges and not table.is_private:
        remedy = "set subnets and security_group_ids of its VPC, and let its endpoint be reached from there"
        statement = f"missing, and the public endpoint of {table.eks_cluster} admits {', '.join(ranges[:3])} alone"
        yield StatedProblem(f"{place}.subnets", statement, remedy, "functions outside a VPC have no fixed address")
