"""One job under the operator: from its admission to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from muster.options.hyperpod.local import node_choice
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore, owner_of, timestamp
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.kubernetes.status_errors import StatusError
from muster.options.hyperpod.local.node import Node, instance_of
from muster.options.hyperpod.local.nodes import Nodes
from muster.options.hyperpod.local.operator import agents, status_writer
from muster.options.hyperpod.local.operator.agents import AgentStatus
from muster.options.hyperpod.local.operator.faults_of_pods import LOST_AGENT, NODE_FAULT, Fault, fault_of
from muster.options.hyperpod.local.operator.job_view import FOREVER, JobView
from muster.options.hyperpod.local.operator.pod_view import JOB_LABEL, PodView, new_pod
from muster.options.hyperpod.local.operator.restarts import Remedy, RestartCounts, judge, to_avoid
from muster.options.hyperpod.local.reconciler import Reconciler

_ASK_SECONDS = 0.25  # between two looks at the agents of a job; AWS does not say how often the operator asks
_SETTLE_SECONDS = 1.0
_UNREACHABLE_SECONDS = 30.0  # a busy machine answers late; AWS does not say
_DEFAULT_SCALING_SECONDS = 60
_DEFAULT_FAULTY_SECONDS = 30
MASTER_PORT = 29400
_RESTART = {"restart_mode": "process_level_restart"}


class Phase(Enum):
    """What the operator waits for."""

    GATHERING = auto()
    """Pods and their agents; then /start."""
    TRAINING = auto()
    """The agents; they complete or fault."""
    GROWING = auto()
    """The additional pods of a scale-up, while the others train."""


@dataclass(frozen=True)
class JobCluster:
    """What a job's run needs of the cluster."""

    store: ObjectStore
    nodes: Nodes
    granted: Callable[[Mapping[str, Any]], int | None]
    """The pods for which Kueue has given quota; None for a job without a queue."""


class JobRun:
    """Reconciles one job in a thread of its own, on changes and timers."""

    def __init__(self, cluster: JobCluster, namespace: str, name: str, uid: str, closed: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._namespace, self._name, self._uid = namespace, name, uid
        self._closed = closed
        self._phase = Phase.GATHERING
        self._count = 0
        """Pods that train."""
        self._created: set[int] = set()
        self._ranks: dict[str, int] = {}
        """Uid of a pod that was started -> its rank."""
        self._stopped: set[str] = set()
        """Uids of pods whose agents were asked to stop."""
        self._leaving: set[str] = set()
        """Uids of pods that the operator itself has deleted."""
        self._finished: set[str] = set()
        self._fault: Fault | None = None
        self._fault_at = 0.0
        self._unseen: dict[str, float] = {}
        """Since when an agent does not answer."""
        self._counts = RestartCounts()
        self._offenders: list[str] = []
        self._avoid: list[str] = []
        self._scaled_at = time.monotonic()
        self._refusal = ""
        """Why the last pod was refused."""
        self._grow_to = 0
        self.loop = Reconciler(f"job-{name}", self._reconcile)

    # --- one look ------------------------------------------------------------------------------

    def _reconcile(self) -> float | None:
        document = self._store.find(JOBS, self._name, self._namespace)
        if document is None or document["metadata"]["uid"] != self._uid:
            self.loop.close()
            self._closed(self._uid)
            return None
        if document["metadata"].get("deletionTimestamp"):
            return None
        view = JobView(document)
        if view.has_ended:
            return self._after_end(view)
        granted = self._cluster.granted(document)
        if view.policy.get("suspend") or granted == 0:
            self._suspend(view)
            return None
        view = self._begin(view, granted)
        over = self._deadline(view)
        if over is not None:
            self._fail(view, *over)
            return 0.0
        return self._advance(view, granted)

    def _begin(self, view: JobView, granted: int | None) -> JobView:
        """The operator acknowledges the job, or Kueue has let it continue."""
        if self._count == 0:
            allowed = view.replicas if granted is None else min(view.replicas, granted - view.spares)
            self._count = max(allowed, 1)
        return self._write(view, status_writer.begun)

    def _deadline(self, view: JobView) -> tuple[str, str] | None:
        """A time limit that is over: its reason and message."""
        elapsed = _seconds_since(view.status.get("startTime"))
        active = view.policy.get("activeDeadlineSeconds")
        if active is not None and elapsed > active:
            return "DeadlineExceeded", f"The job was active longer than activeDeadlineSeconds {active}"
        startup = view.policy.get("startupDeadlineSeconds")
        if startup is not None and not self._ranks and self._fault is None and elapsed > startup:
            waiting = self._why_waiting(view)
            return "StartupDeadlineExceeded", f"The job did not start within startupDeadlineSeconds {startup}{waiting}"
        limit = view.policy.get("faultDeadlineSeconds")
        if limit is not None and self._fault is not None and time.monotonic() - self._fault_at > limit:
            words = f"The fault of reason {self._fault.reason} was not remediated within faultDeadlineSeconds {limit}"
            return "FaultDeadlineExceeded", f"{words}: {self._fault.message}"
        return None

    def _why_waiting(self, view: JobView) -> str:
        if self._refusal:
            return f": {self._refusal}"
        for pod in self._pods(view):
            for container in pod.status.get("containerStatuses") or ():
                waiting = container["state"].get("waiting")
                if waiting:
                    return f": {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
            for condition in pod.status.get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return f": {condition.get('message', '')}"
        return ""

    def _advance(self, view: JobView, granted: int | None) -> float | None:
        pods = self._pods(view)
        self._leaving &= {pod.uid for pod in pods}
        nodes = self._cluster.nodes.all()
        active = self._active(pods)
        names = {pod.name for pod in pods}
        missing = [
            name
            for index in sorted(self._created)
            if index < self._count and (name := f"{view.name}-{view.replica_name}-{index}") not in names
        ]
        if self._ranks and not self._all_there(active):
            missing = missing or ["of a rank"]
        fault = fault_of(active, nodes, self._finished, missing if self._fault is None else ())
        if fault is not None:
            return self._remedy(view, fault, pods)
        self._replace_spares(pods, active, nodes)
        pods = self._create_missing(view, pods)
        view = self._write(
            view, lambda status, at: status_writer.pods_seen(status, at, self._active(pods), self._count)
        )
        if self._phase is Phase.GATHERING:
            return self._gather(view, pods)
        return self._train(view, pods, nodes, granted)

    # --- pods ----------------------------------------------------------------------------------

    def _pods(self, view: JobView) -> list[PodView]:
        found = self._store.list(PODS, view.namespace, {JOB_LABEL: view.name})
        mine = [PodView(item) for item in found if owner_of(item) == view.uid]
        return sorted(mine, key=lambda pod: pod.index)

    def _active(self, pods: Sequence[PodView]) -> list[PodView]:
        """The pods that train; before the start the first ones."""
        if self._ranks:
            return [pod for pod in pods if pod.uid in self._ranks]
        return [pod for pod in pods if pod.index < self._count and pod.uid not in self._leaving]

    def _all_there(self, active: Sequence[PodView]) -> bool:
        return self._phase is Phase.GATHERING or len(active) == len(self._ranks)

    def _wanted(self, view: JobView) -> int:
        return max(self._count, self._grow_to) + view.spares

    def _create_missing(self, view: JobView, pods: Sequence[PodView]) -> list[PodView]:
        there = {pod.index for pod in pods}
        made = []
        for index in range(self._wanted(view)):
            if index not in there:
                document = new_pod(view, index, self._avoid)
                try:
                    made.append(PodView(self._store.create(PODS, document, view.namespace)))
                except StatusError as error:
                    if error.code != 409:
                        return self._refused(str(error), pods)
                else:
                    self._created.add(index)
                    self._refusal = ""
        for pod in pods:
            if pod.index >= self._wanted(view) and not pod.deleting and pod.uid not in self._ranks:
                self._delete(pod)
        return sorted([*pods, *made], key=lambda pod: pod.index)

    def _refused(self, why: str, pods: Sequence[PodView]) -> list[PodView]:
        """A pod was refused, because its service account is not there, for example: it is tried again."""
        self._refusal = why
        self.loop.wake(_SETTLE_SECONDS)
        return list(pods)

    def _replace_spares(self, pods: Sequence[PodView], active: Sequence[PodView], nodes: Mapping[str, Node]) -> None:
        """A spare that is at fault is replaced; the job does not notice."""
        training = {pod.uid for pod in active}
        for pod in pods:
            if pod.uid not in training and not pod.deleting:
                fault = fault_of([pod], nodes, (), ())
                if fault is not None:
                    self._delete(pod, force=fault.reason == NODE_FAULT)

    def _delete(self, pod: PodView, *, force: bool = False) -> None:
        self._created.discard(pod.index)
        self._leaving.add(pod.uid)
        self._store.discard(PODS, pod.document["metadata"], 0 if force else None)

    # --- gathering and training ----------------------------------------------------------------

    def _gather(self, view: JobView, pods: Sequence[PodView]) -> float | None:
        """Wait until as many agents are ready as train; start them."""
        states = {pod.uid: agents.status_of(pod.address).state for pod in pods if pod.runs and pod.address}
        for pod in pods:
            busy = states.get(pod.uid) in {"running", "faulted", "completed"}
            if busy and pod.uid not in self._stopped and agents.tell(pod.address, "/stop", _RESTART):
                self._stopped.add(pod.uid)
        ready = [pod for pod in pods if states.get(pod.uid) == "ready"]
        self._shrink_if_late(view, len(ready))
        if len(ready) >= self._count:
            self._start(view, ready)
            return _ASK_SECONDS
        return _ASK_SECONDS if states else self._next_timer(view)

    def _next_timer(self, view: JobView) -> float:
        """Pods wake a reconciliation when they run; until then only deadlines pass."""
        pending = view.elastic is not None or any(
            view.policy.get(name) is not None
            for name in ("startupDeadlineSeconds", "activeDeadlineSeconds", "faultDeadlineSeconds")
        )
        return _SETTLE_SECONDS if pending else 60.0

    def _shrink_if_late(self, view: JobView, ready: int) -> None:
        """An elastic job continues with fewer pods where those that lack do not come in time."""
        if view.elastic is None or ready >= self._count:
            return
        name, default = (
            ("scalingTimeoutInSeconds", _DEFAULT_SCALING_SECONDS)
            if self._fault is None
            else ("faultyScaleDownTimeoutInSeconds", _DEFAULT_FAULTY_SECONDS)
        )
        waited = time.monotonic() - (self._scaled_at if self._fault is None else self._fault_at)
        possible = [count for count in view.counts if count <= ready]
        if possible and waited > float(view.elastic.get(name) or default):
            self._count = possible[-1]
            self._scaled_at = time.monotonic()
            self._write(view, lambda status, _: status_writer.scaled(status, view, self._count))

    def _start(self, view: JobView, ready: Sequence[PodView]) -> None:
        """Give ranks to the agents that are ready, the old ones where there are some, and start them."""
        chosen = self._choose(ready)
        addresses = [{"rank": rank, "ip": pod.address} for rank, pod in enumerate(chosen)]
        version = str(time.time_ns())
        for rank, pod in enumerate(chosen):
            agents.tell(
                pod.address,
                "/start",
                {
                    "rank": rank,
                    "nnodes": len(chosen),
                    "faultCount": self._counts.total,
                    "master_addr": chosen[0].address,
                    "master_port": MASTER_PORT,
                    "ipVersion": version,
                    "rankIps": addresses,
                    "log_monitoring_configuration": view.policy.get("logMonitoringConfiguration"),
                },
            )
        self._ranks = {pod.uid: rank for rank, pod in enumerate(chosen)}
        self._finished, self._stopped, self._unseen = set(), set(), {}
        self._phase, self._grow_to = Phase.TRAINING, 0
        fault, self._fault = self._fault, None
        message = ""
        if fault is not None:
            milliseconds = round((time.monotonic() - self._fault_at) * 1000)
            message = f"The fault of reason {fault.reason} was remediated in {milliseconds} milliseconds."
        self._write(view, lambda status, at: status_writer.running(status, at, message))

    def _choose(self, ready: Sequence[PodView]) -> list[PodView]:
        """The pods by rank: a pod keeps its rank, a spare takes that of a pod that is lost."""
        kept = {self._ranks[pod.uid]: pod for pod in ready if self._ranks.get(pod.uid, self._count) < self._count}
        others = [pod for pod in ready if pod.uid not in {item.uid for item in kept.values()}]
        return [kept.get(rank) or others.pop(0) for rank in range(self._count)]

    def _train(
        self, view: JobView, pods: Sequence[PodView], nodes: Mapping[str, Node], granted: int | None
    ) -> float | None:
        active = self._active(pods)
        for pod in active:
            if pod.uid in self._finished or not pod.runs:
                continue
            status = agents.status_of(pod.address)
            lost = self._lost_agent(pod, status)
            if lost is not None:
                return self._remedy(view, lost, pods)
            if status.state == "completed":
                self._finished.add(pod.uid)
            if status.state == "faulted":
                return self._remedy(view, Fault(status.reason or "WorkerFault", status.message, (pod,)), pods)
        if len(self._finished) == len(self._ranks):
            self._write(view, status_writer.completed)
            return 0.0
        if view.elastic is not None:
            self._grow(view, pods, nodes, granted)
        return _ASK_SECONDS

    def _lost_agent(self, pod: PodView, status: AgentStatus) -> Fault | None:
        if status.state:
            self._unseen.pop(pod.uid, None)
            return None
        since = self._unseen.setdefault(pod.uid, time.monotonic())
        if time.monotonic() - since < _UNREACHABLE_SECONDS:
            return None
        return Fault(LOST_AGENT, f"The agent of pod {pod.name} does not answer", (pod,))

    # --- elastic -------------------------------------------------------------------------------

    def _grow(self, view: JobView, pods: Sequence[PodView], nodes: Mapping[str, Node], granted: int | None) -> None:
        """More pods where there is room for them: they come first, then all start again with the new number."""
        policy, now = view.elastic or {}, time.monotonic()
        if self._phase is Phase.GROWING:
            self._end_growing(view, pods, policy, now)
            return
        snooze = max(view.restart_policy.snooze_seconds if self._counts.total else 0, _SETTLE_SECONDS)
        if self._finished or now - self._scaled_at < snooze:
            return
        most = view.counts[-1] if granted is None else min(view.counts[-1], granted - view.spares)
        if most <= self._count:
            return
        rooms = node_choice.rooms(nodes.values(), self._store.list(PODS))
        room = node_choice.room_for(new_pod(view, 0, self._avoid)["spec"], rooms, most - self._count)
        possible = [count for count in view.counts if self._count < count <= self._count + room]
        if possible:
            self._phase, self._grow_to, self._scaled_at = Phase.GROWING, possible[-1], now
            self.loop.wake()

    def _end_growing(self, view: JobView, pods: Sequence[PodView], policy: Mapping[str, Any], now: float) -> None:
        new = [pod for pod in pods if pod.uid not in self._ranks and pod.index < self._grow_to and pod.runs]
        ready = [pod for pod in new if agents.status_of(pod.address).state == "ready"]
        if len(self._ranks) + len(ready) >= self._grow_to:
            graceful = int(policy.get("gracefulShutdownTimeoutInSeconds") or 0)
            body = {"is_graceful": graceful > 0, **({"timeout": graceful} if graceful else {})}
            for pod in self._active(pods):
                if agents.tell(pod.address, "/stop", {**_RESTART, **body}):
                    self._stopped.add(pod.uid)
            self._count, self._phase = self._grow_to, Phase.GATHERING
            self._write(view, lambda status, _: status_writer.scaled(status, view, self._count))
        elif now - self._scaled_at > float(policy.get("scalingTimeoutInSeconds") or _DEFAULT_SCALING_SECONDS):
            self._phase, self._grow_to, self._scaled_at = Phase.TRAINING, 0, now

    # --- faults and ends -----------------------------------------------------------------------

    def _remedy(self, view: JobView, fault: Fault, pods: Sequence[PodView]) -> float | None:
        verdict = judge(view.restart_policy, self._counts, _seconds_since(view.status.get("startTime")))
        if verdict.remedy is Remedy.FAIL:
            after = f"after {self._counts.total} restarts; {verdict.limit}"
            self._fail(view, fault.reason, f"{fault.message} ({after})")
            return 0.0
        self._counts = verdict.counts
        if self._fault is None:
            self._fault_at = time.monotonic()
        self._fault = fault
        self._offenders += [instance_of(pod.node) for pod in fault.pods if pod.node]
        self._phase, self._grow_to = Phase.GATHERING, 0
        self._stopped, self._unseen, self._finished = set(), {}, set()
        self._write(view, lambda status, at: status_writer.restarting(status, at, fault, verdict.counts.total))
        if verdict.remedy is Remedy.JOB:
            self._avoid = to_avoid(view.restart_policy, self._offenders)
            self._ranks = {}
            for pod in pods:
                self._delete(pod, force=pod in fault.pods and fault.reason == NODE_FAULT)
        elif fault.replaces_pods:
            for pod in fault.pods:
                self._ranks.pop(pod.uid, None)
                self._delete(pod, force=fault.reason in {NODE_FAULT, LOST_AGENT})
        there = {pod.uid for pod in pods} - ({pod.uid for pod in fault.pods} if fault.replaces_pods else set())
        self._ranks = {uid: rank for uid, rank in self._ranks.items() if uid in there}
        self._created &= {pod.index for pod in pods if pod.uid in there}
        return 0.0

    def _fail(self, view: JobView, reason: str, message: str) -> None:
        self._write(view, lambda status, at: status_writer.failed(status, at, reason, message))

    def _suspend(self, view: JobView) -> None:
        """Kueue holds the job, or its owner does: it has no pods."""
        for pod in self._pods(view):
            if not pod.deleting:
                self._delete(pod)
        self._phase, self._count, self._grow_to = Phase.GATHERING, 0, 0
        self._ranks, self._created, self._finished, self._stopped = {}, set(), set(), set()
        self._fault = None
        self._write(view, status_writer.suspended)

    def _after_end(self, view: JobView) -> float | None:
        """Clean up the pods of a job that has ended, then the job itself, by its policies."""
        completed = view.condition("Completed") is not None
        clean = view.policy.get("cleanPodPolicy", "All")
        for pod in self._pods(view):
            if pod.deleting:
                continue
            ended = pod.phase in {"Succeeded", "Failed"}
            if clean == "All" or (clean == "OnlyComplete" and completed and pod.phase != "Failed"):
                self._delete(pod)
            elif not ended and pod.address and pod.uid not in self._stopped:
                self._stopped.add(pod.uid)
                agents.tell(pod.address, "/shutdown")
        if view.keep_seconds == FOREVER:
            return None
        left = view.keep_seconds - _seconds_since(view.status["completionTime"])
        if left > 0:
            return left
        self._store.discard(JOBS, view.document["metadata"])
        return None

    def _write(self, view: JobView, change: Callable[[dict[str, Any], str], None]) -> JobView:
        """Change the status; the job as it is then."""

        def apply(document: dict[str, Any]) -> None:
            change(document.setdefault("status", {}), timestamp())

        return JobView(self._store.change(JOBS, view.document["metadata"], apply) or view.document)


def _seconds_since(at: str | None) -> float:
    """Seconds from a time of a status; 0 where it has none."""
    return 0.0 if at is None else (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
