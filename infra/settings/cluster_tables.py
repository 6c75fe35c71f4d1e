"""HyperPod clusters: the tables `hyperpod_clusters.NAME` of the settings. Their rules are the option's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.training.clusters import ALLOWED_MAX, NAMESPACES_MAX, Cluster, Clusters, DnsLabel, EksName
from muster.contract.training.values import Path, Wording

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
    known = set(Cluster.model_fields)
    found = ({"name": name, **table.model_dump(include=known)} for name, table in sorted(tables.items()))
    # The lists of a settings file are tuples in a document.
    return Clusters(clusters=tuple(Cluster.model_validate(one, strict=False) for one in found))
