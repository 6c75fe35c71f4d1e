"""The embedded cluster with all that is round it in the service."""

from __future__ import annotations

import asyncio
import base64
from functools import partial

from hypercorn.asyncio import serve

from muster.local.certificate_authority import create_certificates, listening, tls_config
from muster.local.sagemaker.log_shipping import LogSink
from muster.local.service.option_services import Hosted, ServiceParts
from muster.options.hyperpod.contract.pod_log_lines import STREAMS
from muster.options.hyperpod.local.cluster_calls import ClusterCalls, cluster_arn, log_group
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.eks.embedded_clusters import authenticator, register
from muster.options.hyperpod.local.eks.pod_identities import PodIdentities
from muster.options.hyperpod.local.embedded_cluster import EmbeddedCluster
from muster.options.hyperpod.local.kubernetes.application import VERSION, KubernetesApi
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.pods.pod_machine import PodMachine

GROUP = "workers"
"""The one instance group of the cluster."""

_HOST = "127.0.0.1"
_background: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


class HostedCluster:
    """The cluster of a cloud."""

    def __init__(self, parts: ServiceParts, settings: ClusterSettings) -> None:
        account, host = parts.host.account, parts.host
        arn = cluster_arn(account, settings.name)
        self._host = host
        self._log_group = log_group(settings.name)
        store, authenticate = ObjectStore(), authenticator(account, settings.eks_cluster)
        self._api = KubernetesApi(settings.eks_cluster, store, authenticate, parts.faults, parts.calls)
        self._certificates = create_certificates(parts.place / "certificates", _HOST)
        self._listener = listening(_HOST, 0)
        endpoint = f"https://{_HOST}:{self._listener.getsockname()[1]}"
        authority = base64.b64encode(self._certificates.authority.read_bytes()).decode()
        register(account, settings.eks_cluster, endpoint, authority, VERSION)
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
        config = tls_config(self._listener, self._certificates)
        served = serve(self._api, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py
        _background.add(asyncio.create_task(served))
        return Hosted(self._calls.operations, self._clusters, self._cluster.running)

    def _open_log(self, node: str) -> LogSink:
        """The log stream of a node: its agent ships the lines of all pods there."""
        stream = f"{STREAMS}/{GROUP}/{node}"
        self._host.open_log_stream(self._log_group, stream)
        return partial(self._host.put_log_events, self._log_group, stream)
