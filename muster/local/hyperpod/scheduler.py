"""The scheduler of the cluster: it binds pods to nodes when there is room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.local.hyperpod import placement
from muster.local.hyperpod.quantities import requests_of
from muster.local.hyperpod.work_queue import WorkQueue
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import NODES
from muster.local.kubernetes.objects.status_errors import StatusError
from muster.local.kubernetes.objects.store import ObjectStore, timestamp

_ALL = "pods"


class Scheduler:
    """Looks at all pods without a node whenever a pod or a node has changed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._queue: WorkQueue[str] = WorkQueue("scheduler", self._schedule)

    def seen(self) -> None:
        """A pod or a node has changed."""
        self._queue.add(_ALL)

    def _schedule(self, _key: str) -> None:
        pods = self._store.list(PODS).items
        waiting = [
            pod for pod in pods if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]
        if not waiting:
            return
        rooms = placement.rooms(self._store.list(NODES).items, pods)
        for pod in sorted(waiting, key=lambda item: item["metadata"]["name"]):
            found = placement.place(pod["spec"], rooms)
            if found.node is None:
                self._say(pod, found.message)
                continue
            next(room for room in rooms if room.name == found.node).take(requests_of(pod["spec"]))
            self._bind(pod, found.node)

    def _bind(self, pod: Mapping[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        try:
            self._store.bind(PODS, metadata["name"], metadata["namespace"], node)
        except StatusError as error:
            if error.code not in {404, 409}:
                raise

    def _say(self, pod: Mapping[str, Any], message: str) -> None:
        """The condition PodScheduled of a pod for which there is no node."""
        said = [item for item in pod.get("status", {}).get("conditions", ()) if item["type"] == "PodScheduled"]
        if said and said[0].get("message") == message:
            return
        at = timestamp(self._store.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": at,
        }

        def change(document: dict[str, Any]) -> None:
            if not document["spec"].get("nodeName"):
                document.setdefault("status", {})["conditions"] = [condition]

        try:
            self._store.change(PODS, pod["metadata"]["name"], change, pod["metadata"]["namespace"], "status")
        except StatusError as error:
            if error.code != 404:
                raise
