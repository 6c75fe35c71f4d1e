"""HyperPod clusters: the tables `hyperpod_clusters.NAME` of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.clusters import (
    ALLOWED_MAX,
    CLUSTERS_MAX,
    ENV_LOCAL_CLUSTERS,
    NAMESPACES_MAX,
    Cluster,
    Clusters,
    DnsLabel,
    EksName,
)
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.values import Path, Wording
from muster.options.hyperpod.contract.object_identity import ACCOUNT_HEAD

CLUSTERS_BYTES_MAX = 1_000
"""Of MUSTER_CLUSTERS. Lambda: a function's environment has at most 4,096 bytes."""
_SUBNETS_MAX, _GROUPS_MAX = 16, 5  # Lambda: VpcConfig

_NetworkId = Annotated[
    str, Field(max_length=32, pattern=r"^[a-z]+-[0-9a-zA-Z]+$"), Wording("an ID such as subnet-0a1b2c3d")
]


class ClusterTable(BaseModel):
    """One cluster. Its name is SageMaker's; the table says how the functions reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    eks_cluster: EksName = Field(description="the EKS cluster that orchestrates it, in the stack's account and region")
    namespaces: list[DnsLabel] = Field(
        min_length=1,
        max_length=NAMESPACES_MAX,
        description="the namespaces in which replicas may run; the first is the default of a spec",
    )
    service_accounts: list[DnsLabel] = Field(
        default_factory=list,
        max_length=ALLOWED_MAX,
        description="service accounts of your own that specs may name: everyone who may start a run has their rights",
    )
    host_paths: list[Path] = Field(
        default_factory=list,
        max_length=ALLOWED_MAX,
        description="paths of the nodes that specs may mount, each exactly: everyone who may start a run can use them",
    )
    subnets: list[_NetworkId] = Field(
        default_factory=list,
        max_length=_SUBNETS_MAX,
        description="subnets of the functions that call it; only where its endpoint is private",
    )
    security_group_ids: list[_NetworkId] = Field(
        default_factory=list, max_length=_GROUPS_MAX, description="security groups of these functions"
    )

    @property
    def is_private(self) -> bool:
        """Whether its endpoint can be reached only from a VPC."""
        return bool(self.subnets and self.security_group_ids)


ClusterTables = Mapping[str, ClusterTable]


def clusters_of(tables: ClusterTables) -> Clusters:
    """The clusters as functions and clients know them."""
    return Clusters(
        clusters=tuple(
            Cluster(
                name=name,
                eks_cluster=table.eks_cluster,
                namespaces=tuple(table.namespaces),
                service_accounts=tuple(table.service_accounts),
                host_paths=tuple(table.host_paths),
            )
            for name, table in sorted(tables.items())
        )
    )


def local_cluster_tables(environment: Mapping[str, str]) -> dict[str, Any]:
    """The tables of the embedded cloud's clusters, in the environment of a shell that uses it."""
    known = environment.get(ENV_LOCAL_CLUSTERS)
    clusters = Clusters() if not known else Clusters.model_validate_json(known)
    return {
        cluster.name: {
            "eks_cluster": cluster.eks_cluster,
            "namespaces": [*cluster.namespaces],
            "service_accounts": [*cluster.service_accounts],
            "host_paths": [*cluster.host_paths],
        }
        for cluster in clusters.clusters
    }


def network_of(tables: ClusterTables) -> VpcConfig | None:
    """The network of the functions that call clusters; None where all endpoints are public."""
    found = next((table for _, table in sorted(tables.items()) if table.is_private), None)
    return None if found is None else _network(found)


def cluster_table_problems(tables: ClusterTables, job_prefix: str) -> Iterator[Problem]:
    """What is wrong with the clusters, each of whose values is right by itself."""
    if len(tables) > CLUSTERS_MAX:
        yield Problem(
            "hyperpod_clusters", f"{len(tables)} clusters", "deploy a second stack", f"at most {CLUSTERS_MAX}"
        )
    network, of_eks = network_of(tables), dict[str, str]()
    for name, table in sorted(tables.items()):
        place = f"hyperpod_clusters.{name}"
        if bool(table.subnets) != bool(table.security_group_ids):
            there, missing = ("subnets", "security_group_ids") if table.subnets else ("security_group_ids", "subnets")
            yield StatedProblem(
                f"{place}.{missing}", f"missing beside {there}", "set both, or none for a public endpoint"
            )
        elif table.is_private and network is not None and _network(table) != network:
            allowed = "a function of Lambda is in one VPC: all private clusters have the same subnets and groups"
            yield StatedProblem(f"{place}.subnets", "differs from that of another cluster", "write the same", allowed)
        if len(set(table.namespaces)) < len(table.namespaces):
            yield StatedProblem(f"{place}.namespaces", "a namespace stands there twice", "remove the repetition")
        if own := [account for account in table.service_accounts if account.startswith(ACCOUNT_HEAD)]:
            allowed = f"names that begin with {ACCOUNT_HEAD} are those of runs"
            yield Problem(f"{place}.service_accounts", repr(own[0]), "leave it out", allowed)
        for path in table.host_paths:
            if ".." in path.split("/"):
                yield Problem(f"{place}.host_paths", repr(path), "write where it leads", "an absolute path without ..")
        other = of_eks.setdefault(table.eks_cluster, name)
        if other != name:
            yield StatedProblem(f"{place}.eks_cluster", f"it is that of {other}, too", "name each EKS cluster once")
    if tables and job_prefix != job_prefix.lower():
        remedy = "write it in lower case: it begins the names of jobs on clusters"
        yield Problem(
            "stack.job_prefix", repr(job_prefix), remedy, "with hyperpod_clusters lower-case letters and digits"
        )
    size = len(clusters_of(tables).to_json()) if tables else 0
    if size > CLUSTERS_BYTES_MAX:
        allowed = f"at most {CLUSTERS_BYTES_MAX:,} bytes with all names and paths, a limit of Lambda"
        yield Problem("hyperpod_clusters", f"{size:,} bytes", "name fewer or shorter namespaces and paths", allowed)


def _network(table: ClusterTable) -> VpcConfig:
    return VpcConfig(subnets=sorted(table.subnets), security_group_ids=sorted(table.security_group_ids))
