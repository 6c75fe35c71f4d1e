"""The status of a pod with one container, as its kubelet writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.options.hyperpod.local.kubernetes.object_store import timestamp

Document = dict[str, Any]
_MESSAGE_BYTES = 4096  # kubelet: a termination message


def waiting(pod: Mapping[str, Any], reason: str, message: str = "") -> Document:
    """The container waits: ContainerCreating, ErrImagePull, ImagePullBackOff, CreateContainerConfigError."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return _status(pod, "Pending", state)


def running(pod: Mapping[str, Any], address: str, started: str) -> Document:
    """The container runs."""
    status = _status(pod, "Running", {"running": {"startedAt": started}})
    return {**status, "podIP": address, "hostIP": address}


def ended(pod: Mapping[str, Any], code: int, reason: str, message: str, started: str | None = None) -> Document:
    """The container has ended; without `started` it has never run."""
    terminated: Document = {"exitCode": code, "reason": reason, "finishedAt": timestamp()}
    if started:
        terminated["startedAt"] = started
    if message:
        terminated["message"] = message[:_MESSAGE_BYTES]
    return _status(pod, "Succeeded" if code == 0 else "Failed", {"terminated": terminated})


def _status(pod: Mapping[str, Any], phase: str, state: Document) -> Document:
    ready = phase == "Running"
    container = pod["spec"]["containers"][0]
    answer = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": container.get("image", "") if "waiting" not in state else "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": str(ready), **({} if ready else {"reason": "ContainersNotReady"})},
    ]
    return {**pod.get("status", {}), "phase": phase, "conditions": conditions, "containerStatuses": [answer]}
