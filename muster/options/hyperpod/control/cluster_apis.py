"""The Kubernetes APIs of a stack's clusters. A warm function keeps connections and tokens."""

from __future__ import annotations

import base64
from functools import partial

from botocore.exceptions import ClientError

from muster.contract.training.clusters import Cluster, Clusters
from muster.control.aws.aws_errors import error_code
from muster.options.hyperpod.control.api import Connection, KubernetesApi
from muster.options.hyperpod.control.cluster_clients import NOT_FOUND, ClusterClients
from muster.options.hyperpod.control.cluster_errors import (
    ClusterGoneError,
    ClusterUnavailableError,
    ClusterUnknownError,
)


class ClusterApis:
    """The API of each cluster, opened when it is first called."""

    def __init__(self, clients: ClusterClients, clusters: Clusters) -> None:
        self.clusters = clusters
        self.clients = clients
        self._apis: dict[str, KubernetesApi] = {}

    def cluster(self, name: str) -> Cluster:
        """A cluster of the settings.

        Raises:
            ClusterUnknownError: the settings do not have it.
        """
        found = self.clusters.named(name)
        if found is None:
            raise ClusterUnknownError(name, [cluster.name for cluster in self.clusters.clusters])
        return found

    def api(self, name: str) -> KubernetesApi:
        """The API of a cluster of the settings; calls of it raise ClusterGoneError where there is no such EKS cluster.

        Raises:
            ClusterUnknownError: the settings do not have it.
        """
        api = self._apis.get(name)
        if api is None:
            cluster = self.cluster(name)
            connect, token = partial(self._connection, cluster), partial(self.clients.token, cluster.eks_cluster)
            api = self._apis[name] = KubernetesApi(name, connect, token)
        return api

    def _connection(self, cluster: Cluster) -> Connection:
        try:
            found = self.clients.eks.describe_cluster(name=cluster.eks_cluster)["cluster"]
        except ClientError as error:
            if error_code(error) == NOT_FOUND:
                raise ClusterGoneError(cluster.name, cluster.eks_cluster) from None
            raise
        endpoint, authority = found.get("endpoint"), found.get("certificateAuthority", {}).get("data")
        if not endpoint or not authority:
            message = f"The EKS cluster {cluster.eks_cluster} of {cluster.name} is {found.get('status')}: it has no API"
            raise ClusterUnavailableError(message)
        public = found.get("resourcesVpcConfig", {}).get("endpointPublicAccess", True)
        place = f"EKS cluster {cluster.eks_cluster}, {found.get('status')}"
        place += "" if public else ", whose endpoint only its VPC reaches"
        pem = base64.b64decode(authority).decode("ascii")
        return Connection(self.clients.transport(endpoint, pem), place)
