"""The tables `hyperpod_clusters.NAME` of the settings: what a deployment with clusters must hold, and what follows.

Without the CDK, which takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.clusters import CLUSTERS_MAX, ENV_LOCAL_CLUSTERS, Clusters
from muster.contract.training.network_access import VpcConfig
from muster.infra.settings.cluster_tables import ClusterTable, ClusterTables, clusters_of
from muster.infra.settings.settings_file import SettingsOffer
from muster.options.hyperpod.contract.object_identity import ACCOUNT_HEAD
from muster.options.hyperpod.infra.cluster_preflight import cluster_problems, cluster_state

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account
    from muster.infra.settings.stack_settings import StackSettings

CLUSTERS_BYTES_MAX = 1_000
"""Of MUSTER_CLUSTERS. Lambda: a function's environment has at most 4,096 bytes."""


def network_of(tables: ClusterTables) -> VpcConfig | None:
    """The network of the functions that call clusters; None where all endpoints are public."""
    found = next((table for _, table in sorted(tables.items()) if table.is_private), None)
    return None if found is None else _network(found)


def _problems(settings: StackSettings) -> Iterator[Problem]:
    """What is wrong with the clusters, each of whose values is right by itself."""
    tables, job_prefix = settings.hyperpod_clusters, settings.job_prefix
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


def _local_tables(environment: Mapping[str, str]) -> dict[str, Any]:
    """The tables of the embedded cloud's clusters, in the environment of a shell that uses it."""
    known = environment.get(ENV_LOCAL_CLUSTERS)
    clusters = Clusters.model_validate_json(known).clusters if known else ()
    tables = {cluster.name: cluster.model_dump(mode="json", exclude={"name"}) for cluster in clusters}
    return {"hyperpod_clusters": tables} if tables else {}


def _preflight(account: Account, settings: StackSettings) -> Iterator[Problem]:
    for name, table in sorted(settings.hyperpod_clusters.items()):
        yield from cluster_problems(name, table, cluster_state(account, name, table.eks_cluster))


OFFER = SettingsOffer(_problems, _local_tables, _preflight)
