"""The HyperPod clusters that a stack may use, as its functions and its specs know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.training.values import Path, Wording

# Lambda: the environment of a function has at most 4 KB.
CLUSTERS_MAX = 10
NAMESPACES_MAX = 10  # of one cluster
ALLOWED_MAX = 10  # service accounts, and paths of nodes, that specs may name on one cluster
ENV_LOCAL_CLUSTERS = "MUSTER_LOCAL_CLUSTERS"
"""The clusters of the embedded cloud as JSON, in the shell that uses it: a local deployment may use them."""

ClusterName = Annotated[
    str,
    # CreateCluster of SageMaker: ClusterName.
    Field(max_length=63, pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$"),
    Wording("the name of a HyperPod cluster: letters, digits and hyphens"),
]
EksName = Annotated[
    str,
    # CreateCluster of EKS: name.
    Field(max_length=100, pattern=r"^[0-9A-Za-z][A-Za-z0-9_\-]*$"),
    Wording("the name of an EKS cluster: letters, digits, hyphens and underscores"),
]
DnsLabel = Annotated[
    str,
    Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
    Wording("a Kubernetes name: lower-case letters, digits and hyphens, up to 63"),
]


class Cluster(StoredPart):
    """A HyperPod cluster with the EKS cluster that orchestrates it."""

    name: ClusterName
    eks_cluster: EksName
    namespaces: tuple[DnsLabel, ...] = Field(min_length=1, max_length=NAMESPACES_MAX)

    # What a spec may name there beside what Muster makes: its pods would have the rights, or the files, of others.
    service_accounts: tuple[DnsLabel, ...] = Field(default=(), max_length=ALLOWED_MAX)
    host_paths: tuple[Path, ...] = Field(default=(), max_length=ALLOWED_MAX)

    @property
    def default_namespace(self) -> str:
        """The namespace of jobs whose spec names none: the first one."""
        return self.namespaces[0]


class Clusters(StoredDocument):
    """All clusters of a stack; the environment variable MUSTER_CLUSTERS of its functions."""

    clusters: tuple[Cluster, ...] = Field(default=(), max_length=CLUSTERS_MAX)

    def named(self, name: str) -> Cluster | None:
        """The cluster of that name, or None."""
        return next((cluster for cluster in self.clusters if cluster.name == name), None)
