"""The embedded cluster with all that is round it in the service."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Mapping
from functools import partial

from muster.local.ministack.host import Host
from muster.local.sagemaker.log_shipping import LogSink
from muster.local.service.option_services import Hosted, ServiceParts
from muster.options.hyperpod.contract.pod_log_lines import STREAMS
from muster.options.hyperpod.local.cluster_calls import ClusterCalls, cluster_arn, log_group
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.eks.pod_identities import PodIdentities
from muster.options.hyperpod.local.embedded_cluster import ClusterParts, EmbeddedCluster
from muster.options.hyperpod.local.kubernetes.kubernetes_server import KubernetesServer
from muster.options.hyperpod.local.pods.pod_machine import PodMachine

GROUP = "workers"
"""The one instance group of the cluster."""

_log = logging.getLogger(__name__)
_Entry = tuple[str, str, Mapping[str, object], str]
_background: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


class EventQueue:
    """Puts events on the bus from a thread of its own; `put` never blocks."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: queue.SimpleQueue[_Entry] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="cluster-events", daemon=True).start()

    def put(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> None:
        """Put an event on the default bus."""
        self._entries.put((source, detail_type, detail, resource))

    def _run(self) -> None:
        while True:
            entry = self._entries.get()
            try:
                self._host.put_event(*entry)
            except Exception:
                _log.exception("The event %s was not sent", entry[1])


class HostedCluster:
    """The cluster of a cloud."""

    def __init__(self, parts: ServiceParts, settings: ClusterSettings) -> None:
        account, host = parts.host.account, parts.host
        arn = cluster_arn(account, settings.name)
        self._host = host
        self._log_group = log_group(settings.name)
        self._server = KubernetesServer(
            account, settings.eks_cluster, parts.place / "certificates", parts.faults, parts.calls
        )
        machine = PodMachine(
            code=parts.code,
            processes=parts.processes,
            place=parts.place,
            endpoint=parts.endpoint,
            credentials=PodIdentities(account, settings.eks_cluster).variables,
            open_log=self._open_log,
        )
        events = ClusterEvents(EventQueue(host).put, settings.name, arn, GROUP)
        self._cluster = EmbeddedCluster(
            ClusterParts(self._server.store, settings, account.region, machine, events, parts.faults)
        )
        self._calls = ClusterCalls(account, settings, self._cluster.nodes, GROUP)
        self._clusters = settings.clusters

    def start(self) -> Hosted:
        """Serve its Kubernetes API in the loop that runs."""
        _background.add(self._server.start())
        return Hosted(self._calls.operations, self._clusters, self._cluster.running)

    def _open_log(self, node: str) -> LogSink:
        """The log stream of a node: its agent ships the lines of all pods there."""
        stream = f"{STREAMS}/{GROUP}/{node}"
        self._host.open_log_stream(self._log_group, stream)
        return partial(self._host.put_log_events, self._log_group, stream)
