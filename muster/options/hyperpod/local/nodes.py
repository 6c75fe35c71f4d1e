"""The nodes of the cluster: they join, are lost, fail their health checks, are repaired."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.node import Health, Node, instance_of, new_instance_id
from muster.options.hyperpod.local.work_queue import WorkQueue

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


class Nodes:
    """The controller of all nodes. Thread-safe."""

    def __init__(
        self,
        settings: ClusterSettings,
        region: str,
        events: ClusterEvents,
        lose_processes: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        """`lose_processes` ends all that runs on a node, without notice; `changed` is called after every change."""
        self._settings = settings
        self._region = region
        self._events = events
        self._lose_processes = lose_processes
        self._changed = changed
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._repairing: set[str] = set()
        self._queue: WorkQueue[tuple[str, Step]] = WorkQueue("nodes", self._step)

    def all(self) -> dict[str, Node]:
        """The nodes by name."""
        with self._lock:
            return dict(sorted(self._nodes.items()))

    def join(self, count: int, replaces: str = "") -> None:
        """New instances join the cluster."""
        group, where = self._events.group, f"in Cluster {self._events.name} and IG {self._events.group}"
        for _ in range(count):
            node = Node(new_instance_id(), self._settings.node_type, group, self._region)
            with self._lock:
                self._nodes[node.name] = node
            words = f"Instance {node.instance} is starting as part of instance replacement {where}"
            if replaces:
                self._events.instance(node.instance, words)
            self._events.instance(node.instance, f"EC2 Instance {node.instance} successfully provisioned {where}")
        self._changed()

    def lose(self, name: str) -> None:
        """The instance is gone, with its processes; the cluster notices it later."""
        self._lose_processes(name)
        with self._lock:
            self._repairing.add(name)
        self._queue.add((name, Step.NOTICE), self._settings.node_seconds)

    def fail_health_check(self, name: str, *, reboot: bool) -> None:
        """A deep health check of the node has failed: it is drained, and repaired later."""
        with self._lock:
            if name in self._repairing:
                return
            self._repairing.add(name)
        health = Health.PENDING_REBOOT if reboot else Health.PENDING_REPLACEMENT
        self._set(name, health=health)
        self._unhealthy(name, "NvidiaErrorReboot" if reboot else "NvidiaErrorTerminate", reboot=reboot)
        self._queue.add((name, Step.REPAIR), self._settings.node_seconds)

    # --- steps ---------------------------------------------------------------------------------

    def _step(self, key: tuple[str, Step]) -> None:
        name, step = key
        if step is Step.NOTICE:
            self._set(name, health=Health.PENDING_REPLACEMENT, is_ready=False)
            self._unhealthy(name, "InstanceUnreachable", reboot=False)
            self._queue.add((name, Step.REPLACE), self._settings.replace_seconds)
        elif step is Step.REPAIR:
            self._repair(name)
        elif step is Step.REPLACE:
            self._end_instance(name)
            self.join(1, replaces=name)
        else:
            self._set(name, health=Health.SCHEDULABLE, is_ready=True)
            with self._lock:
                self._repairing.discard(name)
            self._events.node_health(
                instance_of(name),
                healthy=True,
                why="The node is healthy.",
                repair="None",
                recommendation="No action is needed.",
            )

    def _repair(self, name: str) -> None:
        self._lose_processes(name)
        self._set(name, is_ready=False)
        step = Step.REPLACE
        if self.all()[name].health is Health.PENDING_REBOOT:
            instance, step = instance_of(name), Step.RETURN
            where = f"on Cluster {self._events.name} and IG {self._events.group}"
            self._events.instance(instance, f"Reboot of EC2 Instance {instance} is currently in progress {where}")
        self._queue.add((name, step), self._settings.replace_seconds)

    def _end_instance(self, name: str) -> None:
        instance, where = instance_of(name), f"in Cluster {self._events.name} and IG {self._events.group}"
        with self._lock:
            self._nodes.pop(name, None)
            self._repairing.discard(name)
        self._events.instance(instance, f"Termination of EC2 Instance {instance} is currently in progress {where}")

    def _unhealthy(self, name: str, fault: str, *, reboot: bool) -> None:
        repair = "Reboot" if reboot else "Replace"
        self._events.node_health(
            instance_of(name),
            healthy=False,
            why=_AGENT.format(fault),
            repair=repair,
            recommendation=f"Please {repair} the Faulty Node.",
        )

    def _set(self, name: str, **changes: Health | bool) -> None:
        with self._lock:
            self._nodes[name] = replace(self._nodes[name], **changes)  # type: ignore[arg-type]  # of its fields
        self._changed()
