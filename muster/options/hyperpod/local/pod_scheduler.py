"""The scheduler of the cluster: it binds pods to nodes when there is room."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from muster.options.hyperpod.local import node_choice
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore, timestamp
from muster.options.hyperpod.local.kubernetes.served_resources import PODS
from muster.options.hyperpod.local.nodes import Nodes
from muster.options.hyperpod.local.quantities import requests_of
from muster.options.hyperpod.local.reconciler import Reconciler


class Scheduler:
    """Looks at all pods without a node; its loop is woken whenever a pod or a node has changed."""

    def __init__(self, store: ObjectStore, nodes: Nodes) -> None:
        self._store = store
        self._nodes = nodes
        self.loop = Reconciler("scheduler", self._schedule)

    def _schedule(self) -> None:
        pods = self._store.list(PODS)
        waiting = [
            pod for pod in pods if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]
        if not waiting:
            return
        rooms = node_choice.rooms(self._nodes.all().values(), pods)
        for pod in sorted(waiting, key=lambda item: item["metadata"]["name"]):
            found = node_choice.place(pod["spec"], rooms)
            if found.node is None:
                self._say(pod, found.message)
                continue
            next(room for room in rooms if room.node.name == found.node).take(requests_of(pod["spec"]))
            self._store.change(PODS, pod["metadata"], partial(_put_on, found.node))

    def _say(self, pod: Mapping[str, Any], message: str) -> None:
        """The condition PodScheduled of a pod for which there is no node."""
        said = [item for item in pod["status"].get("conditions", ()) if item["type"] == "PodScheduled"]
        if said and said[0].get("message") == message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": timestamp(),
        }
        self._store.change(PODS, pod["metadata"], lambda document: document["status"].update(conditions=[condition]))


def _put_on(node: str, document: dict[str, Any]) -> None:
    document["spec"]["nodeName"] = node
