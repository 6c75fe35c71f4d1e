"""Kueue: a job of a team's queue waits until the quota has room for all of its pods; a lower priority gives way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from muster.options.hyperpod.contract.job_document import PRIORITY_LABEL, QUEUE_LABEL
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.node import allocatable
from muster.options.hyperpod.local.operator.job_view import JobView
from muster.options.hyperpod.local.operator.pod_view import JOB_LABEL
from muster.options.hyperpod.local.quantities import Amounts, lacking, requests_of, times, total
from muster.options.hyperpod.local.reconciler import Reconciler

PRIORITIES = {"inference-priority": 100, "training-priority": 80, "experiments-priority": 50, "idle-priority": 0}
"""The priority classes of a cluster's policy, with their weights."""
_UNCOUNTED = frozenset({"pods", "ephemeral-storage"})
_ENDED = frozenset({"Succeeded", "Failed"})
Document = dict[str, Any]


def local_queue(namespace: str) -> str:
    """The queue of a team's namespace, as HyperPod's task governance names it."""
    return f"{namespace}-localqueue"


@dataclass(frozen=True)
class Claim:
    """A job's claim on the quota of its team."""

    key: str
    priority: int
    created: str
    """When, as text that sorts."""
    each: Amounts
    """Of one pod."""
    counts: tuple[int, ...]
    """The numbers of pods with which it can run, rising; one unless it is elastic. Spares are included."""
    granted: int = 0
    """The pods for which it has quota; 0 while it waits."""
    granted_at: float = 0.0
    releasing: int = 0
    """The pods of a job that was evicted and that still end."""
    held: bool = False
    """It may not be admitted now."""


@dataclass
class QueueChanges:
    """What changes."""

    grants: dict[str, int] = field(default_factory=dict)
    """Pods that a job gets now: one that waited is admitted, an elastic one may get more."""
    evictions: list[str] = field(default_factory=list)


def decide(claims: Sequence[Claim], quota: Amounts) -> QueueChanges:
    """Admit in the order of priority and age what fits; where a lower priority is in the way, evict that first."""
    decision = QueueChanges()
    usage = total(times(claim.each, max(claim.granted, claim.releasing)) for claim in claims)
    running = {claim.key: claim for claim in claims if claim.granted}
    for claim in sorted(claims, key=lambda item: (-item.priority, item.created, item.key)):
        if claim.granted or claim.releasing or claim.held:
            continue
        count = _most(claim, claim.counts, quota, usage)
        if count is not None:
            decision.grants[claim.key] = count
            usage = total((usage, times(claim.each, count)))
            continue
        victims = _victims(claim, running.values(), quota, usage)
        for victim in victims:
            decision.evictions.append(victim.key)
            del running[victim.key]
        if victims:
            # What is freed is for this one alone.
            usage = total((usage, times(claim.each, claim.counts[0])))
    for claim in running.values():
        more = [count - claim.granted for count in claim.counts if count > claim.granted]
        grown = _most(claim, more, quota, usage)
        if grown is not None:
            decision.grants[claim.key] = claim.granted + grown
            usage = total((usage, times(claim.each, grown)))
    return decision


def _most(claim: Claim, counts: Sequence[int], quota: Amounts, usage: Amounts) -> int | None:
    """The largest of some rising numbers of pods for which there is room."""
    left = {name: amount - usage.get(name, Fraction(0)) for name, amount in quota.items()}
    return max((count for count in counts if not lacking(times(claim.each, count), left)), default=None)


def _victims(claim: Claim, running: Iterable[Claim], quota: Amounts, usage: Amounts) -> list[Claim]:
    """The jobs to evict: lowest priority first, of these the newest; none where all would not be enough."""
    lower = sorted(
        (other for other in running if other.priority < claim.priority),
        key=lambda other: (other.priority, -other.granted_at),
    )
    used, chosen = dict(usage), []
    for other in lower:
        chosen.append(other)
        used = total((used, times(other.each, -other.granted)))
        if _most(claim, claim.counts[:1], quota, used) is not None:
            return chosen
    return []


@dataclass
class _Workload:
    """What Kueue knows of a job: the pods for which it has quota, and until when it is not admitted again."""

    granted: int = 0
    granted_at: float = 0.0
    held_until: float = 0.0


class Kueue:
    """Looks at all jobs of the team's queue; its loop is woken whenever a job or a pod has changed. Thread-safe."""

    def __init__(self, store: ObjectStore, settings: ClusterSettings, changed: Callable[[], None]) -> None:
        """`changed` is called when a job has got quota, or lost it."""
        self._store = store
        self._namespace = settings.namespace
        self._quota = _counted(times(allocatable(settings.node_type), settings.nodes))
        self._changed = changed
        self._workloads: dict[str, _Workload] = {}
        """By the uids of their jobs."""
        self._lock = threading.RLock()
        self.loop = Reconciler("kueue", self._reconcile)

    def granted(self, job: Mapping[str, Any]) -> int | None:
        """The pods for which a job has quota, spares included; None for a job without a queue."""
        if not _queue_of(job):
            return None
        with self._lock:
            workload = self._workloads.get(job["metadata"]["uid"])
            return 0 if workload is None else workload.granted

    def preempt(self, job: Document, wait_seconds: float) -> None:
        """Evict a job, as for one of a higher priority. It is queued again after `wait_seconds`."""
        with self._lock:
            workload = self._workloads.get(job["metadata"]["uid"])
            if workload is None or not workload.granted:
                return
            workload.held_until = time.monotonic() + wait_seconds
            self._grant(job, 0)
        self.loop.wake(wait_seconds)

    def _reconcile(self) -> float | None:
        with self._lock:
            jobs = {
                job["metadata"]["uid"]: job
                for job in self._store.list(JOBS)
                if _queue_of(job) and not job["metadata"].get("deletionTimestamp") and not JobView(job).has_ended
            }
            self._workloads = {uid: self._workloads.get(uid) or _Workload() for uid in jobs}
            claims = [self._claim(uid, job) for uid, job in jobs.items() if _is_in(job, self._namespace)]
            decision = decide(claims, self._quota)
            for uid in decision.evictions:
                self._grant(jobs[uid], 0)
            for uid, count in decision.grants.items():
                self._grant(jobs[uid], count)
            for uid, job in jobs.items():
                if not self._workloads[uid].granted:
                    self._suspend(job, suspended=True)
            now = time.monotonic()
            held = [workload.held_until - now for workload in self._workloads.values() if workload.held_until > now]
            return min(held, default=None)

    def _claim(self, uid: str, job: Document) -> Claim:
        metadata, view, workload = job["metadata"], JobView(job), self._workloads[uid]
        pods = self._store.list(PODS, metadata["namespace"], {JOB_LABEL: metadata["name"]})
        live = sum(pod["status"]["phase"] not in _ENDED for pod in pods)
        return Claim(
            key=uid,
            priority=PRIORITIES.get(metadata["labels"].get(PRIORITY_LABEL), 0),
            created=metadata["creationTimestamp"],
            each=_counted(requests_of(view.pod_spec)),
            counts=tuple(count + view.spares for count in view.counts),
            granted=workload.granted,
            granted_at=workload.granted_at,
            releasing=0 if workload.granted else live,
            held=workload.held_until > time.monotonic(),
        )

    def _grant(self, job: Document, count: int) -> None:
        """Give a job quota for so many pods; 0 evicts it."""
        workload = self._workloads[job["metadata"]["uid"]]
        if not workload.granted:
            workload.granted_at = time.monotonic()
        workload.granted = count
        self._suspend(job, suspended=count == 0)
        self._changed()

    def _suspend(self, job: Document, *, suspended: bool) -> None:
        """spec.runPolicy.suspend, by which Kueue holds a job and lets it run."""

        def change(document: Document) -> None:
            policy = document["spec"].setdefault("runPolicy", {})
            if bool(policy.get("suspend")) is not suspended:
                policy["suspend"] = suspended

        self._store.change(JOBS, job["metadata"], change)


def _counted(amounts: Amounts) -> dict[str, Fraction]:
    """Without what no quota covers."""
    return {name: amount for name, amount in amounts.items() if name not in _UNCOUNTED}


def _queue_of(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("labels") or {}).get(QUEUE_LABEL, ""))


def _is_in(job: Mapping[str, Any], namespace: str) -> bool:
    """Whether a job is in the queue of a namespace; one whose queue or priority does not exist waits for ever."""
    labels = job["metadata"]["labels"]
    priority = labels.get(PRIORITY_LABEL)
    is_there = job["metadata"]["namespace"] == namespace and labels[QUEUE_LABEL] == local_queue(namespace)
    return is_there and (not priority or priority in PRIORITIES)
