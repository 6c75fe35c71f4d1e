"""What a deployment with HyperPod clusters must hold. Without the CDK, which takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from muster.contract.errors import Problem
from muster.infra.settings.settings_file import SettingsOffer
from muster.options.hyperpod.infra.cluster_preflight import cluster_problems, cluster_state
from muster.options.hyperpod.infra.cluster_table import cluster_table_problems, local_cluster_tables

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account
    from muster.infra.settings.stack_settings import StackSettings


def _problems(settings: StackSettings) -> Iterator[Problem]:
    return cluster_table_problems(settings.hyperpod_clusters, settings.job_prefix)


def _local_tables(environment: Mapping[str, str]) -> dict[str, Any]:
    tables = local_cluster_tables(environment)
    return {"hyperpod_clusters": tables} if tables else {}


def _preflight(account: Account, settings: StackSettings) -> Iterator[Problem]:
    for name, table in sorted(settings.hyperpod_clusters.items()):
        yield from cluster_problems(name, table, cluster_state(account, name, table.eks_cluster))


OFFER = SettingsOffer(_problems, _local_tables, _preflight)
