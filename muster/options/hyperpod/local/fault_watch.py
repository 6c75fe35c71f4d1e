"""The faults of a cluster's jobs and nodes, when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from muster.local.faults import DeletedJob, FailedHealthCheck, LostNode, OperatorDown, Preemption
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.kueue import Kueue
from muster.options.hyperpod.local.nodes import Nodes
from muster.options.hyperpod.local.operator.controller import Operator
from muster.options.hyperpod.local.operator.job_view import JobView
from muster.options.hyperpod.local.operator.pod_view import JOB_LABEL
from muster.options.hyperpod.local.reconciler import Reconciler

_F = TypeVar("_F", LostNode, FailedHealthCheck, Preemption, DeletedJob, OperatorDown)
_LOOK_SECONDS = 0.2  # while a fault waits for its time
_KINDS = (LostNode, FailedHealthCheck, Preemption, DeletedJob, OperatorDown)


class FaultWatch:
    """Looks when a fault is added, when a job begins to run, and while one waits for its time."""

    def __init__(self, store: ObjectStore, nodes: Nodes, kueue: Kueue, operator: Operator, book: FaultBook) -> None:
        self._store, self._nodes, self._kueue, self._operator = store, nodes, kueue, operator
        self._book = book
        self._began: dict[str, float] = {}
        """Since when a job runs, by its uid."""
        self.loop = Reconciler("cluster-faults", self._look)
        book.on_add(self.loop.wake)

    def _look(self) -> float | None:
        running = {}
        for document in self._store.list(JOBS):
            view = JobView(document)
            if view.condition("Running") is not None:
                running[view.uid] = view
        now = time.monotonic()
        self._began = {uid: self._began.get(uid, now) for uid in running}
        for uid, view in running.items():
            self._strike(view, now - self._began[uid])
        waits = any(self._waits(kind, view) for view in running.values() for kind in _KINDS)
        return _LOOK_SECONDS if waits else None

    def _strike(self, view: JobView, seconds: float) -> None:
        for lost in self._due(LostNode, view, seconds, self._has_node(view)):
            self._nodes.lose(self._node(view, lost.pod))
        for failed in self._due(FailedHealthCheck, view, seconds, self._has_node(view)):
            self._nodes.fail_health_check(self._node(view, failed.pod), reboot=failed.reboot)
        queued = self._kueue.granted(view.document) is not None
        for preemption in self._due(Preemption, view, seconds, lambda _fault: queued):
            self._kueue.preempt(dict(view.document), preemption.seconds)
        for _ in self._due(DeletedJob, view, seconds):
            self._store.discard(JOBS, view.document["metadata"])
        for down in self._due(OperatorDown, view, seconds):
            self._operator.pause(down.seconds)

    def _due(
        self, kind: type[_F], view: JobView, seconds: float, possible: Callable[[_F], bool] = lambda _fault: True
    ) -> Iterator[_F]:
        """The next fault of `kind` for a job, if it is due; counted as fired."""

        def matches(fault: _F) -> bool:
            return fnmatchcase(view.name, fault.job) and fault.after_seconds <= seconds and possible(fault)

        fault = self._book.take(kind, matches)
        if fault is not None:
            yield fault

    def _waits(self, kind: type[Any], view: JobView) -> bool:
        return self._book.find(kind, lambda fault: fnmatchcase(view.name, fault.job)) is not None

    def _has_node(self, view: JobView) -> Callable[[LostNode | FailedHealthCheck], bool]:
        return lambda fault: bool(self._node(view, fault.pod))

    def _node(self, view: JobView, index: int) -> str:
        """The node of a pod of a job; empty where there is none."""
        pods = self._store.list(PODS, view.namespace, {JOB_LABEL: view.name})
        name = f"{view.name}-{view.replica_name}-{index}"
        found = [pod["spec"].get("nodeName", "") for pod in pods if pod["metadata"]["name"] == name]
        return found[0] if found else ""
