"""The nodes of the cluster: they join, are lost, fail their health checks, are repaired."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.node import Health, Node, instance_of, new_instance_id

_AGENT = "HyperPod Health Monitoring Agent (HMA) has detected fault type {} on this node and is unhealthy."


class Nodes:
    """The controller of all nodes. Thread-safe."""

    def __init__(
        self,
        settings: ClusterSettings,
        events: ClusterEvents,
        lose_processes: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        """`lose_processes` ends all that runs on a node, without notice; `changed` is called after every change."""
        self._settings = settings
        self._events = events
        self._lose_processes = lose_processes
        self._changed = changed
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._repairing: set[str] = set()

    def all(self) -> dict[str, Node]:
        """The nodes by name."""
        with self._lock:
            return dict(sorted(self._nodes.items()))

    def join(self, count: int, *, replacing: bool = False) -> None:
        """New instances join the cluster."""
        group, where = self._events.group, self._where("in")
        for _ in range(count):
            node = Node(new_instance_id(), self._settings.node_type, group, self._events.region)
            with self._lock:
                self._nodes[node.name] = node
            if replacing:
                words = f"Instance {node.instance} is starting as part of instance replacement {where}"
                self._events.instance(node.instance, words)
            self._events.instance(node.instance, f"EC2 Instance {node.instance} successfully provisioned {where}")
        self._changed()

    def lose(self, name: str) -> None:
        """The instance is gone, with its processes; the cluster notices it later."""
        self._lose_processes(name)
        with self._lock:
            self._repairing.add(name)
        self._later(self._settings.node_seconds, self._notice, name)

    def fail_health_check(self, name: str, *, reboot: bool) -> None:
        """A deep health check of the node has failed: it is drained, and repaired later."""
        with self._lock:
            if name in self._repairing:
                return
            self._repairing.add(name)
        health = Health.PENDING_REBOOT if reboot else Health.PENDING_REPLACEMENT
        self._set(name, health=health)
        self._unhealthy(name, "NvidiaErrorReboot" if reboot else "NvidiaErrorTerminate", reboot=reboot)
        self._later(self._settings.node_seconds, self._repair, name)

    # --- what follows, each in its time --------------------------------------------------------

    def _later(self, seconds: float, step: Callable[[str], None], name: str) -> None:
        def act() -> None:
            if name in self.all():  # another fault may have replaced it
                step(name)

        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()

    def _notice(self, name: str) -> None:
        """The cluster notices that the node is gone."""
        self._set(name, health=Health.PENDING_REPLACEMENT, is_ready=False)
        self._unhealthy(name, "InstanceUnreachable", reboot=False)
        self._later(self._settings.replace_seconds, self._replace, name)

    def _repair(self, name: str) -> None:
        """Its repair begins: the instance is ended or started again."""
        self._lose_processes(name)
        self._set(name, is_ready=False)
        step = self._replace
        if self.all()[name].health is Health.PENDING_REBOOT:
            instance, step = instance_of(name), self._return
            where = self._where("on")
            self._events.instance(instance, f"Reboot of EC2 Instance {instance} is currently in progress {where}")
        self._later(self._settings.replace_seconds, step, name)

    def _replace(self, name: str) -> None:
        """A new instance takes its place."""
        with self._lock:
            if self._nodes.pop(name, None) is None:
                return
            self._repairing.discard(name)
        instance, where = instance_of(name), self._where("in")
        self._events.instance(instance, f"Termination of EC2 Instance {instance} is currently in progress {where}")
        self.join(1, replacing=True)

    def _return(self, name: str) -> None:
        """It is back after a reboot."""
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

    def _where(self, preposition: str) -> str:
        return f"{preposition} Cluster {self._events.name} and IG {self._events.group}"

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
