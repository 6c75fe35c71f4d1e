"""What an embedded HyperPod cluster is like."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from muster.contract.aws.instance_types import CLUSTER_INSTANCE_TYPES
from muster.contract.training.clusters import Cluster, ClusterName, Clusters
from muster.contract.training.resources import DEFAULT_INSTANCE_TYPE


class ClusterSettings(BaseModel):
    """An EKS cluster with a HyperPod cluster on it. All times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClusterName = Field(default="muster-local", description="name of the cluster.")
    node_type: str = Field(default=DEFAULT_INSTANCE_TYPE, description="instance type of the nodes.")
    nodes: int = Field(default=4, ge=1, le=100, description="number of nodes.")
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
        return f"{self.name}-eks"

    @property
    def namespace(self) -> str:
        """The namespace of the one team, with a queue whose quota is that of all nodes."""
        return "hyperpod-ns-team"

    @property
    def clusters(self) -> Clusters:
        """The cluster as a stack has to know it."""
        cluster = Cluster(name=self.name, eks_cluster=self.eks_cluster, namespaces=(self.namespace,))
        return Clusters(clusters=(cluster,))
