"""One embedded HyperPod cluster: the controllers over its objects, and the processes of its pods."""

from __future__ import annotations

import logging
import threading

from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.fault_watch import FaultWatch
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore, WatchEvent
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.kueue import Kueue
from muster.options.hyperpod.local.nodes import Nodes
from muster.options.hyperpod.local.operator.controller import Operator
from muster.options.hyperpod.local.operator.job_run import JobCluster
from muster.options.hyperpod.local.operator.job_view import JobView
from muster.options.hyperpod.local.pod_scheduler import Scheduler
from muster.options.hyperpod.local.pods.kubelet import Kubelet
from muster.options.hyperpod.local.pods.pod_machine import PodMachine

_log = logging.getLogger(__name__)
_NAMESPACES = ("default", "kube-system", "aws-hyperpod", "kueue-system")


class EmbeddedCluster:
    """The cluster. It lives as long as the process."""

    def __init__(
        self,
        store: ObjectStore,
        settings: ClusterSettings,
        machine: PodMachine,
        events: ClusterEvents,
        faults: FaultBook,
    ) -> None:
        self._store = store
        for namespace in (*_NAMESPACES, settings.namespace):
            self._store.add_namespace(namespace)
        self._kubelet = Kubelet(store, machine)
        self._kueue = Kueue(store, settings, self._changed)
        self.nodes = Nodes(settings, events, self._kubelet.lose, self._changed)
        self._operator = Operator(JobCluster(store, self.nodes, self._kueue.granted))
        self._scheduler = Scheduler(store, self.nodes)
        self._faults = FaultWatch(store, self.nodes, self._kueue, self._operator, faults)
        self.nodes.join(settings.nodes)
        self._watch = store.watch()
        threading.Thread(target=self._follow, name=f"cluster-{settings.name}", daemon=True).start()

    def running(self) -> list[str]:
        """Names of the jobs that have not ended, as `namespace/name`."""
        jobs = map(JobView, self._store.list(JOBS))
        return [f"{job.namespace}/{job.name}" for job in jobs if not job.has_ended]

    def _changed(self) -> None:
        """Nodes or quotas have changed."""
        self._scheduler.loop.wake()
        self._operator.wake_all()

    def _follow(self) -> None:
        """Pass every change on to the controllers that it concerns."""
        while True:
            event = self._watch.get()
            try:
                self._dispatch(event)
            except Exception:
                _log.exception("A change of %s was not followed", event.resource.qualified)

    def _dispatch(self, event: WatchEvent) -> None:
        if event.resource == PODS:
            self._kubelet.seen(event.object, is_gone=event.is_gone)
            self._operator.pod_seen(event.object)
            self._scheduler.loop.wake()
            self._kueue.loop.wake()
        elif event.resource == JOBS:
            self._operator.job_seen(event.object, is_gone=event.is_gone)
            self._faults.loop.wake()
            self._kueue.loop.wake()
