"""The nodes of the cluster: they join, are lost, fail their health checks, are repaired."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from muster.local.hyperpod import node_documents
from muster.local.hyperpod.cluster_events import ClusterEvents
from muster.local.hyperpod.cluster_settings import ClusterSettings
from muster.local.hyperpod.node_documents import (
    DEEP_CHECK,
    FAILED,
    FAULT_REASONS,
    FAULT_TYPES,
    HEALTH,
    PASSED,
    PENDING_REBOOT,
    PENDING_REPLACEMENT,
    SCHEDULABLE,
    UNREACHABLE,
)
from muster.local.hyperpod.work_queue import WorkQueue
from muster.local.kubernetes.kinds.resources import NODES
from muster.local.kubernetes.objects.status_errors import StatusError
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.objects.watching import DELETED

Document = dict[str, Any]
_AGENT = "HyperPod Health Monitoring Agent (HMA) has detected fault type {} on this node and is unhealthy."


class Step(Enum):
    """What happens to a node when its time has come."""

    NOTICE = auto()
    """The cluster notices that the node is gone."""
    REPAIR = auto()
    """Its repair begins: the instance is ended or started again."""
    REPLACE = auto()
    """A new instance takes its place."""
    RETURN = auto()
    """It is back after a reboot."""
    SCALE = auto()
    """The cluster gets another number of nodes."""


class Nodes:
    """The controller of all nodes. Thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        settings: ClusterSettings,
        region: str,
        events: ClusterEvents,
        lose_processes: Callable[[str], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._region = region
        self._events = events
        self._lose_processes = lose_processes
        self.target = settings.nodes
        """How many nodes its owner wants."""
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._repairing: set[str] = set()
        self._queue: WorkQueue[tuple[str, Step]] = WorkQueue("nodes", self._step)

    def join(self, count: int) -> None:
        """New instances join the cluster."""
        for _ in range(count):
            self._join()

    def count(self) -> int:
        """How many nodes there are."""
        return len(self._store.list(NODES).items)

    def scale(self, count: int) -> None:
        """Change the number of nodes; the newest leave first, with all that runs on them."""
        self.target = count
        names = [item["metadata"]["name"] for item in self._store.list(NODES).items]
        self._events.state("Updating", len(names), count, self._settings.node_type)
        self.join(max(0, count - len(names)))
        for name in names[count:]:
            self._end_instance(name)
        self._events.state("InService", count, count, self._settings.node_type)

    def scale_later(self, count: int) -> None:
        """`scale`, in the thread of this controller."""
        self._queue.add((str(count), Step.SCALE))

    def repair(self, name: str, *, reboot: bool) -> None:
        """Start the node again, or replace it, as its owner asks."""
        self._label(name, {HEALTH: PENDING_REBOOT if reboot else PENDING_REPLACEMENT})

    def lose(self, name: str) -> None:
        """The instance is gone, with its processes; the cluster notices it later."""
        self._lose_processes(name)
        with self._lock:
            self._repairing.add(name)
        self._queue.add((name, Step.NOTICE), self._settings.node_seconds)

    def fail_health_check(self, name: str, *, reboot: bool) -> None:
        """A deep health check of the node has failed."""

        def change(document: Document) -> None:
            labels = document["metadata"]["labels"]
            labels[DEEP_CHECK] = FAILED
            labels[HEALTH] = PENDING_REBOOT if reboot else PENDING_REPLACEMENT
            labels[FAULT_TYPES] = "NvidiaErrorReboot" if reboot else "NvidiaErrorTerminate"
            labels[FAULT_REASONS] = "DcgmError"

        self._change(name, change)

    def seen(self, kind: str, node: Mapping[str, Any]) -> None:
        """A node has changed: HyperPod repairs one whose label says so, also where a person has set it."""
        name, health = node["metadata"]["name"], node_documents.health(node)
        if kind == DELETED or health not in {PENDING_REBOOT, PENDING_REPLACEMENT}:
            return
        with self._lock:
            if name in self._repairing:
                return
            self._repairing.add(name)
        reboot = health == PENDING_REBOOT
        fault = (node["metadata"].get("labels") or {}).get(FAULT_TYPES, "Manual")
        self._taint(name, health)
        self._events.node_health(
            node_documents.instance_of(name),
            healthy=False,
            why=_AGENT.format(fault),
            repair="Reboot" if reboot else "Replace",
            recommendation=f"Please {'Reboot' if reboot else 'Replace'} the Faulty Node.",
        )
        self._queue.add((name, Step.REPAIR), self._settings.node_seconds)

    # --- steps ---------------------------------------------------------------------------------

    def _step(self, key: tuple[str, Step]) -> None:
        name, step = key
        if step is Step.NOTICE:
            self._notice(name)
        elif step is Step.REPAIR:
            self._repair(name)
        elif step is Step.REPLACE:
            self._end_instance(name)
            self._join(replaces=name)
        elif step is Step.SCALE:
            self.scale(int(name))
        else:
            self._return(name)

    def _notice(self, name: str) -> None:
        words = "Kubelet stopped posting node status."
        self._set_ready(name, "Unknown", "NodeStatusUnknown", words)
        self._taint(name, PENDING_REPLACEMENT, unreachable=True)
        self._label(name, {HEALTH: PENDING_REPLACEMENT})
        self._events.node_health(
            node_documents.instance_of(name),
            healthy=False,
            why=_AGENT.format("InstanceUnreachable"),
            repair="Replace",
            recommendation="Please Replace the Faulty Node.",
        )
        self._queue.add((name, Step.REPLACE), self._settings.replace_seconds)

    def _repair(self, name: str) -> None:
        node = self._store.find(NODES, name)
        if node is None:
            return
        instance, group = node_documents.instance_of(name), self._events.group
        self._lose_processes(name)
        self._set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        if node_documents.health(node) == PENDING_REBOOT:
            self._events.instance(
                instance,
                f"Reboot of EC2 Instance {instance} is currently in progress on Cluster {self._events.name} and IG "
                f"{group}",
            )
            self._queue.add((name, Step.RETURN), self._settings.replace_seconds)
        else:
            self._queue.add((name, Step.REPLACE), self._settings.replace_seconds)

    def _return(self, name: str) -> None:
        def change(document: Document) -> None:
            labels = document["metadata"]["labels"]
            labels.update({HEALTH: SCHEDULABLE, DEEP_CHECK: PASSED})
            for label in (FAULT_TYPES, FAULT_REASONS):
                labels.pop(label, None)
            document["spec"].pop("taints", None)

        self._change(name, change)
        self._set_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
        with self._lock:
            self._repairing.discard(name)
        self._healthy(name)

    def _join(self, replaces: str = "") -> None:
        instance, group = node_documents.new_instance_id(), self._events.group
        document = node_documents.node(instance, next(self._numbers), self._settings.node_type, group, self._region)
        status = document["status"]
        self._store.create(NODES, document)

        def change(created: Document) -> None:
            created["status"] = status

        self._store.change(NODES, document["metadata"]["name"], change, subresource="status")
        where = f"in Cluster {self._events.name} and IG {group}"
        if replaces:
            self._events.instance(instance, f"Instance {instance} is starting as part of instance replacement {where}")
        self._events.instance(instance, f"EC2 Instance {instance} successfully provisioned {where}")

    def _end_instance(self, name: str) -> None:
        instance = node_documents.instance_of(name)
        self._lose_processes(name)
        try:
            self._store.delete(NODES, name)
        except StatusError as error:
            if error.code != 404:
                raise
        with self._lock:
            self._repairing.discard(name)
        self._events.instance(
            instance,
            f"Termination of EC2 Instance {instance} is currently in progress in Cluster {self._events.name} and IG "
            f"{self._events.group}",
        )

    def _healthy(self, name: str) -> None:
        self._events.node_health(
            node_documents.instance_of(name),
            healthy=True,
            why="The node is healthy.",
            repair="None",
            recommendation="No action is needed.",
        )

    # --- the object ----------------------------------------------------------------------------

    def _label(self, name: str, labels: Mapping[str, str]) -> None:
        self._change(name, lambda document: document["metadata"]["labels"].update(labels))

    def _taint(self, name: str, health: str, *, unreachable: bool = False) -> None:
        taints = [node_documents.unhealthy_taint(health)]
        if unreachable:
            taints += [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]

        def change(document: Document) -> None:
            document["spec"]["taints"] = taints

        self._change(name, change)

    def _set_ready(self, name: str, status: str, reason: str, message: str) -> None:
        def change(document: Document) -> None:
            document.setdefault("status", {})["conditions"] = [node_documents.ready(status, reason, message)]

        self._change(name, change, "status")

    def _change(self, name: str, change: Callable[[Document], None], part: Any = "") -> None:
        try:
            self._store.change(NODES, name, change, subresource=part)
        except StatusError as error:
            if error.code != 404:
                raise
