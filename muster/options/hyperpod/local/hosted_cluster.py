"""The embedded cluster with all that is round it in the service."""

from __future__ import annotations

import asyncio
from functools import partial

from muster.local.sagemaker.log_shipping import LogSink
from muster.local.service.option_services import Hosted, ServiceParts
from muster.options.hyperpod.contract.pod_log_lines import STREAMS
from muster.options.hyperpod.local.cluster_calls import ClusterCalls, cluster_arn, log_group
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.eks.embedded_clusters import authenticator
from muster.options.hyperpod.local.eks.pod_identities import PodIdentities
from muster.options.hyperpod.local.embedded_cluster import EmbeddedCluster
from muster.options.hyperpod.local.kubernetes.application import KubernetesApi
from muster.options.hyperpod.local.kubernetes.kubernetes_server import open_server
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.pods.pod_machine import PodMachine

GROUP = "workers"
"""The one instance group of the cluster."""

_background: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


class HostedCluster:
    """The cluster of a cloud."""

    def __init__(self, parts: ServiceParts, settings: ClusterSettings) -> None:
        account, host = parts.host.account, parts.host
        arn = cluster_arn(account, settings.name)
        self._host = host
        self._log_group = log_group(settings.name)
        store, authenticate = ObjectStore(), authenticator(account, settings.eks_cluster)
        api = KubernetesApi(settings.eks_cluster, store, authenticate, parts.faults, parts.calls)
        self._serve = open_server(account, settings.eks_cluster, api, parts.place / "certificates")
        machine = PodMachine(
            code=parts.code,
            processes=parts.processes,
            place=parts.place,
            endpoint=parts.endpoint,
            credentials=PodIdentities(account, settings.eks_cluster).variables,
            open_log=self._open_log,
        )
        events = ClusterEvents(host.post_event, settings.name, arn, GROUP)
        self._cluster = EmbeddedCluster(store, settings, machine, events, parts.faults)
        self._calls = ClusterCalls(account, settings, self._cluster.nodes, GROUP)
        self._clusters = settings.clusters

    def start(self) -> Hosted:
        """Serve its Kubernetes API in the loop that runs."""
        _background.add(asyncio.create_task(self._serve()))
        return Hosted(self._calls.operations, self._clusters, self._cluster.running)

    def _open_log(self, node: str) -> LogSink:
        """The log stream of a node: its agent ships the lines of all pods there."""
        stream = f"{STREAMS}/{GROUP}/{node}"
        self._host.open_log_stream(self._log_group, stream)
        return partial(self._host.put_log_events, self._log_group, stream)
