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


def hosted(parts: ServiceParts, settings: ClusterSettings) -> Hosted:
    """The cluster of a cloud, whose Kubernetes API is served in the loop that runs."""
    account, host = parts.host.account, parts.host
    group = log_group(settings.name)

    def open_log(node: str) -> LogSink:
        """The log stream of a node: its agent ships the lines of all pods there."""
        stream = f"{STREAMS}/{GROUP}/{node}"
        host.open_log_stream(group, stream)
        return partial(host.put_log_events, group, stream)

    store, authenticate = ObjectStore(), authenticator(account, settings.eks_cluster)
    api = KubernetesApi(settings.eks_cluster, store, authenticate, parts.faults, parts.calls)
    certificates, listener = create_certificates(parts.place / "certificates", _HOST), listening(_HOST, 0)
    endpoint = f"https://{_HOST}:{listener.getsockname()[1]}"
    authority = base64.b64encode(certificates.authority.read_bytes()).decode()
    register(account, settings.eks_cluster, endpoint, authority, VERSION)
    machine = PodMachine(
        code=parts.code,
        processes=parts.processes,
        place=parts.place,
        endpoint=parts.endpoint,
        credentials=PodIdentities(account, settings.eks_cluster).variables,
        open_log=open_log,
    )
    events = ClusterEvents(host.post_event, settings.name, cluster_arn(account, settings.name), GROUP)
    cluster = EmbeddedCluster(store, settings, machine, events, parts.faults)
    config = tls_config(listener, certificates)
    listener.detach()  # the server has it by its number
    served = serve(api, config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]  # as in daemon.py
    _background.add(asyncio.create_task(served))
    calls = ClusterCalls(account, settings, cluster.nodes, GROUP)
    return Hosted(calls.operations, settings.clusters, cluster.running)
