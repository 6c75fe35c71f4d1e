"""The embedded cluster with all that is round it in the service."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from muster.local.calls import CallLog
from muster.local.cloud_settings import Settings
from muster.local.hyperpod.cluster_events import ClusterEvents
from muster.local.hyperpod.cluster_settings import ClusterSettings
from muster.local.hyperpod.embedded_cluster import ClusterParts, EmbeddedCluster
from muster.local.hyperpod.hosting.cluster_calls import ClusterCalls, Operation
from muster.local.hyperpod.hosting.event_queue import EventQueue
from muster.local.hyperpod.hosting.observed_calls import ObservedCalls
from muster.local.hyperpod.pods.pod_machine import PodMachine
from muster.local.kubernetes.cluster import KubernetesCluster
from muster.local.ministack.eks import clusters as eks_clusters
from muster.local.ministack.eks.pod_identities import Pod, PodIdentities
from muster.local.ministack.host import Host
from muster.local.processes.process_pool import ProcessPool
from muster.local.sagemaker.log_shipping import LogSink
from muster.local.service.fault_book import FaultBook

KUBERNETES_VERSION = "1.33"
GROUP = "workers"
"""The one instance group of the cluster."""
STREAMS = "SagemakerHyperPodTrainingJob"


@dataclass(frozen=True)
class ServiceParts:
    """What of the service a cluster needs."""

    settings: Settings
    host: Host
    processes: ProcessPool
    faults: FaultBook
    calls: CallLog
    place: Path
    """Folder of the cluster: its pods, nodes and certificates."""
    endpoint: Mapping[str, str]
    """Environment variables with which a container reaches the services."""


class _PodIdentityAgent:
    """Gives pods what their service account's association allows."""

    def __init__(self, identities: PodIdentities) -> None:
        self._identities = identities

    def variables(self, pod: Mapping[str, Any], token_file: Path) -> dict[str, str]:
        """The variables of a pod that starts now."""
        metadata = pod["metadata"]
        account = pod["spec"].get("serviceAccountName", "default")
        return self._identities.variables(
            Pod(metadata["namespace"], account, metadata["name"], metadata["uid"]), token_file
        )


class HostedCluster:
    """The cluster of a cloud. Make it in a thread of the service, not on its event loop."""

    def __init__(self, parts: ServiceParts, settings: ClusterSettings) -> None:
        account, host = parts.host.account, parts.host
        identifier = hashlib.sha256(f"{account.account_id}/{account.region}/{settings.name}".encode()).hexdigest()[:12]
        self.arn = account.arn("sagemaker", f"cluster/{identifier}")
        self.log_group = f"/aws/sagemaker/Clusters/{settings.name}/{identifier}"
        self._host = host
        eks_name = settings.eks_cluster
        self.kubernetes = KubernetesCluster(eks_name, parts.place / "certificates")
        self.authenticate = eks_clusters.authenticator(account, eks_name)
        self.observer = ObservedCalls(eks_name, parts.calls, parts.faults)
        eks_clusters.register(
            account, eks_name, self.kubernetes.endpoint, self.kubernetes.authority, KUBERNETES_VERSION
        )
        machine = PodMachine(
            settings=parts.settings,
            processes=parts.processes,
            place=parts.place,
            endpoint=parts.endpoint,
            identity=_PodIdentityAgent(PodIdentities(account, eks_name)),
            open_log=self._open_log,
        )
        events = ClusterEvents(EventQueue(host).put, settings.name, self.arn, GROUP)
        self.cluster = EmbeddedCluster(
            ClusterParts(self.kubernetes.store, settings, account.region, machine, events, parts.faults)
        )
        self._calls = ClusterCalls(account, self.cluster, self.arn, account.arn("eks", f"cluster/{eks_name}"))
        events.state(self._calls.document())

    @property
    def operations(self) -> dict[str, Operation]:
        """SageMaker's operations on the cluster."""
        return self._calls.operations

    async def serve(self) -> None:
        """Serve its Kubernetes API until the task is cancelled."""
        await self.kubernetes.serve(self.authenticate, self.cluster, self.observer)

    def running(self) -> list[str]:
        """Jobs on it that have not ended."""
        return self.cluster.running()

    def _open_log(self, node: str) -> LogSink:
        """The log stream of a node: its agent ships the lines of all pods there."""
        stream = f"{STREAMS}/{GROUP}/{node}"
        self._host.open_log_stream(self.log_group, stream)
        return partial(self._host.put_log_events, self.log_group, stream)
