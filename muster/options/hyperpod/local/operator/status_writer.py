"""How the operator writes a job's status. Each function changes a status at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.options.hyperpod.local.operator.faults_of_pods import Fault
from muster.options.hyperpod.local.operator.job_view import JobView
from muster.options.hyperpod.local.operator.pod_view import PodView

Status = dict[str, Any]
_MESSAGE_MAX = 32_768  # Kubernetes: the message of a condition


def begun(status: Status, at: str) -> None:
    """The operator has acknowledged the job, which is not suspended."""
    _set(status, "Created", "True", at)
    if any(item["type"] == "Suspended" and item["status"] == "True" for item in status["conditions"]):
        _set(status, "Suspended", "False", at, "Resumed")
    status.setdefault("startTime", at)
    status.setdefault("restartCount", 0)


def suspended(status: Status, at: str) -> None:
    """The job has no pods while it is suspended."""
    _run_no_more(status, at, "Suspended", "The job is suspended")
    _set(status, "Suspended", "True", at, "Suspended", "The job is suspended; it has no pods")
    status.pop("startTime", None)


def pods_seen(status: Status, at: str, pods: Sequence[PodView], count: int) -> None:
    """PodsRunning."""
    if sum(pod.runs for pod in pods) >= count:
        _set(status, "PodsRunning", "True", at)
    elif _has(status, "PodsRunning"):
        _set(status, "PodsRunning", "False", at)


def running(status: Status, at: str, message: str) -> None:
    """The agents were started."""
    _drop(status, "Restarting")
    _set(status, "PodsRunning", "True", at)
    _set(status, "Running", "True", at, "Running", message)


def restarting(status: Status, at: str, fault: Fault, restarts: int) -> None:
    """A fault is being remediated."""
    if _has(status, "Running"):
        _set(status, "Running", "False", at, fault.reason, fault.message)
    _set(status, "Restarting", "True", at, fault.reason, fault.message)
    status["restartCount"] = restarts


def completed(status: Status, at: str) -> None:
    """All agents have completed."""
    _end(status, at, "Completed")
    _set(status, "Completed", "True", at, "Completed", "The job has completed")


def failed(status: Status, at: str, reason: str, message: str) -> None:
    """The operator gives up."""
    _end(status, at, "Failed")
    _set(status, "Failed", "True", at, reason, message)


def scaled(status: Status, view: JobView, count: int) -> None:
    """The number of pods has changed."""
    status["elasticScalingStatus"] = {"targetReplicas": {view.replica_name: count}}


def _end(status: Status, at: str, reason: str) -> None:
    _run_no_more(status, at, reason)
    status["completionTime"] = at


def _run_no_more(status: Status, at: str, *words: str) -> None:
    for kind in ("Running", "PodsRunning"):
        if _has(status, kind):
            _set(status, kind, "False", at, *words)
    _drop(status, "Restarting")


def _has(status: Status, kind: str) -> bool:
    return any(item["type"] == kind for item in status.get("conditions") or ())


def _drop(status: Status, kind: str) -> None:
    status["conditions"] = [item for item in status.get("conditions") or () if item["type"] != kind]


def _set(status: Status, kind: str, value: str, at: str, *words: str) -> None:
    """Set a condition; `words`: reason and message. AWS's command line shows the last one that is True.

    So one that becomes True, or is new, moves to the end. The time is that of the last change from True or False.
    """
    reason, message = (*words, "", "")[:2]
    conditions = [dict(item) for item in status.get("conditions") or ()]
    old = next((item for item in conditions if item["type"] == kind), None)
    new = {"type": kind, "status": value, "lastTransitionTime": at, "reason": reason, "message": message[:_MESSAGE_MAX]}
    new = {name: text for name, text in new.items() if text}
    if old is not None and old["status"] == value:
        new["lastTransitionTime"] = old["lastTransitionTime"]
        status["conditions"] = [new if item is old else item for item in conditions]
    elif old is not None and value != "True":
        status["conditions"] = [new if item is old else item for item in conditions]
    else:
        status["conditions"] = [*(item for item in conditions if item is not old), new]
