"""Kueue in the cluster: a Workload for each job of a queue, admission, eviction."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from muster.contract.hyperpod.identity import API_VERSION, KIND
from muster.local.hyperpod.job_events import JobEvents
from muster.local.hyperpod.kueue.admission import Claim, Decision, Quota, decide
from muster.local.hyperpod.operator.conditions import with_condition
from muster.local.hyperpod.operator.job_view import JobView
from muster.local.hyperpod.quantities import quantity, requests_of
from muster.local.hyperpod.work_queue import WorkQueue
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import (
    CLUSTER_QUEUES,
    JOBS,
    KUEUE,
    LOCAL_QUEUES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from muster.local.kubernetes.objects.status_errors import StatusError
from muster.local.kubernetes.objects.store import ObjectStore, timestamp

QUEUE_LABEL = f"{KUEUE}/queue-name"
PRIORITY_LABEL = f"{KUEUE}/priority-class"
JOB_LABEL = "HPJob"
_ALL = "workloads"
_ENDED = frozenset({"Succeeded", "Failed"})
_PREEMPTED = "Preempted"
Document = dict[str, Any]


class KueueController:
    """Looks at all jobs of all queues whenever one of them, a pod or a queue has changed."""

    def __init__(self, store: ObjectStore, events: JobEvents) -> None:
        self._store = store
        self._events = events
        self._held: dict[str, float] = {}
        """Until when a workload is not admitted again, by its job's uid."""
        self._queue: WorkQueue[str] = WorkQueue("kueue", self._reconcile)

    def seen(self) -> None:
        """A job, a pod, or a queue has changed."""
        self._queue.add(_ALL)

    def granted(self, job: Mapping[str, Any]) -> int | None:
        """The pods for which a job has quota, spares included; None for a job without a queue."""
        if not (job["metadata"].get("labels") or {}).get(QUEUE_LABEL):
            return None
        workload = self._workload(job)
        return 0 if workload is None else _granted(workload)

    def preempt(self, job: Document, wait_seconds: float) -> bool:
        """Evict a job's workload, as for a workload of a higher priority; False where it is not admitted.

        It is queued again after `wait_seconds`.
        """
        uid = job["metadata"]["uid"]
        workload = self._workload(job)
        if workload is None or not _granted(workload):
            return False
        self._held[uid] = time.monotonic() + wait_seconds
        self._evict(job, workload, f"Preempted to accommodate a workload (UID: {uid}) of a higher priority")
        self._queue.add(_ALL, wait_seconds)
        return True

    # --- all workloads -------------------------------------------------------------------------

    def _reconcile(self, _key: str) -> float | None:
        jobs: dict[str, tuple[Document, Document]] = {}
        for job in self._store.list(JOBS).items:
            if (job["metadata"].get("labels") or {}).get(QUEUE_LABEL) and not job["metadata"].get("deletionTimestamp"):
                workload = self._workload(job) or self._create(job)
                if JobView(job).has_ended:
                    self._finish(job, workload)
                else:
                    jobs[job["metadata"]["uid"]] = job, workload
        claims: list[Claim] = []
        waiting: dict[str, str] = {}
        for uid, (job, workload) in jobs.items():
            found = self._claim(uid, job, workload)
            if isinstance(found, Claim):
                claims.append(found)
            else:
                waiting[uid] = found
        decision = decide(claims, self._quotas())
        decision.waiting |= waiting
        self._apply(decision, jobs)
        now = time.monotonic()
        self._held = {uid: until for uid, until in self._held.items() if until > now and uid in jobs}
        return min((until - now for until in self._held.values()), default=None)

    def _apply(self, decision: Decision, jobs: Mapping[str, tuple[Document, Document]]) -> None:
        for uid in decision.evictions:
            job, workload = jobs[uid]
            self._evict(job, workload, "Preempted to accommodate a workload of a higher priority")
        for uid, count in decision.grants.items():
            self._admit(*jobs[uid], count)
        for uid, why in decision.waiting.items():
            self._wait(*jobs[uid], why)

    def _claim(self, uid: str, job: Document, workload: Document) -> Claim | str:
        """A job's claim, or why it has none."""
        metadata, view = job["metadata"], JobView(job)
        queue_name = metadata["labels"][QUEUE_LABEL]
        queue = self._store.find(LOCAL_QUEUES, queue_name, metadata["namespace"])
        if queue is None:
            return f"LocalQueue {queue_name} doesn't exist"
        priority = self._priority(metadata["labels"].get(PRIORITY_LABEL))
        if priority is None:
            return f'workloadpriorityclasses.kueue.x-k8s.io "{metadata["labels"][PRIORITY_LABEL]}" not found'
        granted = _granted(workload)
        pods = self._store.list(PODS, metadata["namespace"], {JOB_LABEL: metadata["name"]}).items
        live = sum(pod.get("status", {}).get("phase") not in _ENDED for pod in pods)
        return Claim(
            key=uid,
            queue=queue["spec"]["clusterQueue"],
            priority=priority,
            created=metadata["creationTimestamp"],
            each=requests_of(view.pod_spec),
            counts=tuple(count + view.spares for count in view.counts),
            granted=granted,
            granted_at=_granted_at(workload),
            releasing=0 if granted else live,
            held=self._held.get(uid, 0.0) > time.monotonic(),
        )

    def _quotas(self) -> dict[str, Quota]:
        found = {}
        for queue in self._store.list(CLUSTER_QUEUES).items:
            nominal: dict[str, Fraction] = {}
            for group in queue["spec"].get("resourceGroups") or ():
                for flavor in group["flavors"]:
                    for resource in flavor["resources"]:
                        amount = quantity(resource["nominalQuota"])
                        nominal[resource["name"]] = nominal.get(resource["name"], Fraction(0)) + amount
            preemption = queue["spec"].get("preemption") or {}
            found[queue["metadata"]["name"]] = Quota(nominal, preemption.get("withinClusterQueue", "Never") != "Never")
        return found

    def _priority(self, name: str | None) -> int | None:
        if not name:
            return 0
        found = self._store.find(WORKLOAD_PRIORITY_CLASSES, name)
        return None if found is None else int(found["value"])

    # --- one workload --------------------------------------------------------------------------

    def _name(self, job: Mapping[str, Any]) -> str:
        mark = hashlib.sha256(job["metadata"]["uid"].encode()).hexdigest()[:5]
        return f"hyperpodpytorchjob-{job['metadata']['name'][:200]}-{mark}"

    def _workload(self, job: Mapping[str, Any]) -> Document | None:
        return self._store.find(WORKLOADS, self._name(job), job["metadata"]["namespace"])

    def _create(self, job: Document) -> Document:
        metadata, view, name = job["metadata"], JobView(job), self._name(job)
        document = {
            "apiVersion": f"{KUEUE}/v1beta1",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": [
                    {
                        "apiVersion": API_VERSION,
                        "kind": KIND,
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {
                "active": True,
                "queueName": metadata["labels"][QUEUE_LABEL],
                "priority": self._priority(metadata["labels"].get(PRIORITY_LABEL)) or 0,
                "podSets": [
                    {"name": view.replica_name, "count": view.counts[0] + view.spares, "template": view.template}
                ],
            },
        }
        created = self._store.create(WORKLOADS, document, metadata["namespace"])
        self._suspend(job, suspended=True)
        self._events.say(
            job,
            "CreatedWorkload",
            f"Created Workload: {metadata['namespace']}/{name}",
            by="kueue",
        )
        return created

    def _admit(self, job: Document, workload: Document, count: int) -> None:
        first = not _granted(workload)
        queue = self._cluster_queue(workload)

        def change(document: Document) -> None:
            status = document.setdefault("status", {})
            name = document["spec"]["podSets"][0]["name"]
            status["admission"] = {"clusterQueue": queue, "podSetAssignments": [{"name": name, "count": count}]}
            if first:
                at = timestamp(self._store.now())
                words = f"Quota reserved in ClusterQueue {queue}"
                for kind, reason, text in (
                    ("QuotaReserved", "QuotaReserved", words),
                    ("Admitted", "Admitted", "The workload is admitted"),
                ):
                    status["conditions"] = with_condition(
                        status.get("conditions"), kind, "True", at, reason=reason, message=text
                    )
                for kind in ("Evicted", "Preempted"):
                    if any(item["type"] == kind for item in status["conditions"]):
                        status["conditions"] = with_condition(
                            status["conditions"],
                            kind,
                            "False",
                            at,
                            reason="QuotaReserved",
                            message=f"Previously: {kind}",
                        )

        self._write(workload, change)
        if first:
            self._suspend(job, suspended=False)
            self._events.say(job, "Started", f"Admitted by clusterQueue {queue}", by="kueue")

    def _evict(self, job: Document, workload: Document, message: str) -> None:
        def change(document: Document) -> None:
            status, at = document.setdefault("status", {}), timestamp(self._store.now())
            status.pop("admission", None)
            for kind, value, reason in (
                ("QuotaReserved", "False", "Pending"),
                ("Admitted", "False", "NoReservation"),
                ("Evicted", "True", _PREEMPTED),
                (_PREEMPTED, "True", "InClusterQueue"),
            ):
                status["conditions"] = with_condition(
                    status.get("conditions"), kind, value, at, reason=reason, message=message
                )

        self._write(workload, change)
        self._suspend(job, suspended=True)
        self._events.say(job, "Stopped", message, by="kueue")

    def _wait(self, job: Document, workload: Document, why: str) -> None:
        said = [item for item in workload.get("status", {}).get("conditions", ()) if item["type"] == "QuotaReserved"]
        if not said or said[0].get("message") != why:

            def change(document: Document) -> None:
                status, at = document.setdefault("status", {}), timestamp(self._store.now())
                status["conditions"] = with_condition(
                    status.get("conditions"), "QuotaReserved", "False", at, reason="Pending", message=why
                )

            self._write(workload, change)
        self._suspend(job, suspended=True)

    def _finish(self, job: Document, workload: Document) -> None:
        if any(item["type"] == "Finished" for item in workload.get("status", {}).get("conditions", ())):
            return
        completed = JobView(job).condition("Completed")

        def change(document: Document) -> None:
            status, at = document.setdefault("status", {}), timestamp(self._store.now())
            reason = "JobFinished" if completed else "JobFailed"
            status["conditions"] = with_condition(status.get("conditions"), "Finished", "True", at, reason=reason)

        self._write(workload, change)

    def _cluster_queue(self, workload: Document) -> str:
        queue = self._store.get(LOCAL_QUEUES, workload["spec"]["queueName"], workload["metadata"]["namespace"])
        return str(queue["spec"]["clusterQueue"])

    def _write(self, workload: Document, change: Any) -> None:
        metadata = workload["metadata"]
        try:
            self._store.change(WORKLOADS, metadata["name"], change, metadata["namespace"], "status")
        except StatusError as error:
            if error.code != 404:
                raise

    def _suspend(self, job: Document, *, suspended: bool) -> None:
        """spec.runPolicy.suspend, by which Kueue holds a job and lets it run."""
        metadata = job["metadata"]
        now = self._store.find(JOBS, metadata["name"], metadata["namespace"])
        if now is None or bool((now["spec"].get("runPolicy") or {}).get("suspend")) is suspended:
            return

        def change(document: Document) -> None:
            document["spec"].setdefault("runPolicy", {})["suspend"] = suspended

        try:
            self._store.change(JOBS, metadata["name"], change, metadata["namespace"])
        except StatusError as error:
            if error.code != 404:
                raise


def _granted(workload: Document) -> int:
    """The pods for which a workload has quota."""
    admission = workload.get("status", {}).get("admission") or {}
    return sum(item["count"] for item in admission.get("podSetAssignments") or ())


def _granted_at(workload: Document) -> float:
    conditions = workload.get("status", {}).get("conditions") or ()
    at = next((item["lastTransitionTime"] for item in conditions if item["type"] == "QuotaReserved"), "")
    digits = "".join(character for character in at if character.isdigit())
    return float(digits or 0)
