"""One embedded HyperPod cluster: the controllers over its objects, and the processes of its pods."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.local.hyperpod import cluster_content
from muster.local.hyperpod.cluster_events import ClusterEvents
from muster.local.hyperpod.cluster_settings import ClusterSettings
from muster.local.hyperpod.fault_watch import Controllers, FaultWatch
from muster.local.hyperpod.job_events import JobEvents
from muster.local.hyperpod.kueue.controller import QUEUE_LABEL, KueueController
from muster.local.hyperpod.nodes import Nodes
from muster.local.hyperpod.operator.controller import Operator
from muster.local.hyperpod.operator.job_run import JobCluster
from muster.local.hyperpod.pods.kubelet import Kubelet
from muster.local.hyperpod.pods.pod_machine import PodMachine
from muster.local.hyperpod.scheduler import Scheduler
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, NODES, WORKLOADS
from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.objects.watching import WatchEvent
from muster.local.service.fault_book import FaultBook

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterParts:
    """What an embedded cluster is made over."""

    store: ObjectStore
    settings: ClusterSettings
    region: str
    machine: PodMachine
    events: ClusterEvents
    faults: FaultBook


class EmbeddedCluster:
    """The cluster. It lives as long as the process."""

    def __init__(self, parts: ClusterParts) -> None:
        self.settings = parts.settings
        self.store = parts.store
        self.events = parts.events
        job_events = JobEvents(parts.store)
        self.kubelet = Kubelet(parts.store, parts.machine)
        self.kueue = KueueController(parts.store, job_events)
        self.operator = Operator(JobCluster(parts.store, job_events, self.kueue.granted))
        self.nodes = Nodes(parts.store, parts.settings, parts.region, parts.events, self.kubelet.lose)
        self._scheduler = Scheduler(parts.store)
        self._faults = FaultWatch(Controllers(parts.store, self.nodes, self.kueue, self.operator), parts.faults)
        cluster_content.fill(parts.store, parts.settings)
        self.nodes.join(parts.settings.nodes)
        self._watch = parts.store.watch()
        threading.Thread(target=self._follow, name=f"cluster-{parts.settings.name}", daemon=True).start()

    def running(self) -> list[str]:
        """Names of the jobs that have not ended, as `namespace/name`."""
        return [
            f"{job['metadata']['namespace']}/{job['metadata']['name']}"
            for job in self.store.list(JOBS).items
            if not any(
                item["type"] in {"Completed", "Failed"} and item["status"] == "True"
                for item in job.get("status", {}).get("conditions") or ()
            )
        ]

    def _follow(self) -> None:
        """Pass every change on to the controllers that it concerns."""
        while True:
            event = self._watch.next()
            if event is None:  # its backlog was too long: begin again with all objects
                self._watch = self.store.watch()
                continue
            try:
                self._dispatch(event)
            except Exception:
                _log.exception("A change of %s was not followed", event.resource.qualified)

    def _dispatch(self, event: WatchEvent) -> None:
        resource, document = event.resource, event.object
        if resource == PODS:
            self.kubelet.seen(event.type, document)
            self.operator.pod_seen(document)
            self._scheduler.seen()
            self.kueue.seen()
        elif resource == JOBS:
            self.operator.job_seen(event.type, document)
            self._faults.wake()
            if _queued(document):
                self.kueue.seen()
        elif resource == NODES:
            self.nodes.seen(event.type, document)
            self._scheduler.seen()
            self.operator.wake_all()
        elif resource in _QUEUES:
            self.kueue.seen()
            if resource == WORKLOADS:
                self.operator.wake_all()


_QUEUES: tuple[Resource, ...] = (CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS)


def _queued(job: Mapping[str, Any]) -> bool:
    return QUEUE_LABEL in (job["metadata"].get("labels") or {})
