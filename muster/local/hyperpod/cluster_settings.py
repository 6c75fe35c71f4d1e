"""What an embedded HyperPod cluster is like."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from muster.contract.aws.cluster_instances import CLUSTER_INSTANCE_TYPES
from muster.contract.hyperpod.clusters import Cluster, ClusterName, Clusters, DnsLabel, EksName
from muster.contract.training.resources import DEFAULT_INSTANCE_TYPE

DEFAULT_CLUSTER = "muster-local"
DEFAULT_NODES = 4
NODES_MAX = 100
_PREFIX = "hyperpod-ns-"


class ClusterSettings(BaseModel):
    """An EKS cluster with a HyperPod cluster on it. All times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClusterName = DEFAULT_CLUSTER
    eks_name: EksName | None = None
    """Default: the name with `-eks`."""
    node_type: str = DEFAULT_INSTANCE_TYPE
    nodes: int = Field(default=DEFAULT_NODES, ge=1, le=NODES_MAX)
    teams: Annotated[tuple[DnsLabel, ...], Field(min_length=1, max_length=10)] = ("team",)
    """Each has the namespace hyperpod-ns-TEAM, with a local queue and a cluster queue."""
    quota_nodes: int | None = Field(default=None, ge=0)
    """Nodes of each team's quota; default: all of the cluster."""
    node_seconds: float = Field(default=1.0, ge=0)
    """How long the cluster takes to notice that a node is gone (Kubernetes: 40 s)."""
    replace_seconds: float = Field(default=3.0, ge=0)
    """How long a node takes to be replaced, or to start again (HyperPod: minutes)."""

    @field_validator("node_type")
    @classmethod
    def _known(cls, found: str) -> str:
        if found not in CLUSTER_INSTANCE_TYPES:
            known = ", ".join(CLUSTER_INSTANCE_TYPES)
            message = f"{found} is not among the instance types of the embedded cluster: {known}"
            raise ValueError(message)
        return found

    @property
    def eks_cluster(self) -> str:
        """The name of the EKS cluster."""
        return self.eks_name or f"{self.name}-eks"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of the teams."""
        return tuple(f"{_PREFIX}{team}" for team in self.teams)


def clusters_of(settings: ClusterSettings | None) -> Clusters:
    """What a stack has to know of the cluster; nothing where there is none."""
    if settings is None:
        return Clusters()
    cluster = Cluster(name=settings.name, eks_cluster=settings.eks_cluster, namespaces=settings.namespaces)
    return Clusters(clusters=(cluster,))
