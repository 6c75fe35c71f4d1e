"""The lives of jobs on a cluster: what the operator, Kueue, nodes and people do, and what pods report of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.notices import NOTICES
from muster.contract.training.clusters import Cluster, Clusters
from tests.memory.harness import node_event, sns_event
from tests.memory.kubernetes import phase
from tests.simulation.lives import Fate, Life, job_parts, manifest_archive

if TYPE_CHECKING:
    from tests.simulation.world import World

STACK_CLUSTER = Cluster(name="hyper", eks_cluster="eks-one", namespaces=("team-a",))
CLUSTERS = Clusters(clusters=(STACK_CLUSTER,))
QUEUE = "team-a-queue"
# As those of training jobs (`lives.FATES`), with the operator's reason and message in place of SageMaker's.
CLUSTER_FATES = {
    "completes": Fate("Completed", None),
    "user code": Fate("Failed", FailureClass.USER_CODE, "exited with code -256", "WorkerCrash"),
    "infrastructure": Fate("Failed", FailureClass.INFRASTRUCTURE, "Found unhealthy node", "NodeFault"),
    "capacity": Fate("Failed", FailureClass.CAPACITY, "no node", "StartupDeadlineExceeded", trains=False),
    "time-out": Fate("Failed", FailureClass.TIMEOUT, "", "DeadlineExceeded"),
    "spot": Fate("Failed", FailureClass.CAPACITY, "", "WorkloadPreempted"),
    "client error": Fate("Failed", FailureClass.INVALID_REQUEST, "no image", "ErrImagePull", trains=False),
    "stopped by a user": Fate("Stopped", FailureClass.STOPPED_BY_USER),
}
CLUSTER_HANGS = Fate("Failed", FailureClass.INFRASTRUCTURE, "no line for 300 s", "LogHang_steps")
_OPERATOR_SECONDS = (0.3, 0.3, 2.0, 20.0, 200.0)
"""How long the operator needs to see that pods have ended, or that a node is lost."""
_SILENT = {"infrastructure", "capacity", "time-out", "client error"}
"""Ends that no pod lives to report."""


class ClusterLives:
    def __init__(self, world: World) -> None:
        self._world = world
        self._marks: dict[str, int] = {}
        self._uids: dict[str, str] = {}
        self.cluster = world.cloud.kubernetes.add(STACK_CLUSTER.eks_cluster, *STACK_CLUSTER.namespaces)
        self.cluster.on_change = self._changed
        self.cluster.full = world.draws.chance("cluster/full", 0.3)
        self.cluster.stop_seconds = world.draws.pick("cluster/stop seconds", (2.0, 2.0, 30.0, 170.0))

    def _changed(self, name: str, document: dict[str, Any] | None) -> None:
        world, lives = self._world, self._world.lives
        life = lives.jobs.get(name)
        if document is not None and self._uids.get(name) != document["metadata"]["uid"]:
            if life is not None:
                world.reach("a deleted job is created again")
                # A cluster forgets what is deleted: of a job that no call has recorded before, nobody knows.
                # And a slow call may create what a stop has deleted meanwhile: it looks at the fence afterwards.
                known = world.judge.recorded(life)
                is_known = known is not None and known.has_proven_job
                if is_known and world.judge.fence(life.run) is None and name not in lives.late:
                    world.violate("created again", f"{name}, which was deleted")
            self._uids[name] = document["metadata"]["uid"]
            begun = lives.begin(name)
            world.kernel.spawn(name, lambda: self._live(begun))
            return
        if life is None or life.ended is not None:
            return
        if document is None:
            # Its pods were running when its deletion began, so its first process reports its end.
            if life.status == "Stopping" and life.trained:
                self.report(life, "end")
            lives.ends(life, "Stopped")
            return
        held = phase(document)
        if held == "Deleting" and life.status == "InProgress":
            life.status = "Stopping"
        elif held in {"Completed", "Failed"}:
            lives.ends(life, held)

    def report(self, life: Life, kind: str) -> None:
        world, name = self._world, life.name
        self._marks[name] = mark = self._marks.get(name, 0) + 1
        _, run, rank, attempt = job_parts(name)
        key = f"{NOTICES}{run}/{kind}-r{rank}-a{attempt}-pod-{mark}.json"
        world.put(key, b"{}")
        world.deliver("look", sns_event("bucket", key), f"{name} {kind} notice")

    def _live(self, life: Life) -> None:
        world = self._world
        kernel, draws, name = world.kernel, world.draws, life.name
        if self.cluster.full and self._alive(life):
            kernel.sleep(draws.pick(f"{name}/waits", (30.0, 200.0, 2_000.0)))
            if self._alive(life):
                self.cluster.admit(name)
        kernel.sleep(20.0)
        if not self._alive(life):
            return
        if not life.fate.trains:
            life.end = life.fate
            self.cluster.fail(name, life.fate.secondary, life.fate.reason)
            return
        self._train(life)
        seconds = draws.pick(f"{name}/seconds", (300.0, 300.0, 300.0, 0.1, 40.0, 700.0, 7_000.0))
        if draws.chance(f"{name}/restarts", 0.2):
            kernel.sleep(seconds / 2)
            self._restart(life)
        if draws.chance(f"{name}/preempted", 0.1):
            kernel.sleep(seconds / 3)
            self._preempt(life)
        if draws.chance(f"{name}/scales", 0.1) and self._alive(life):
            self.cluster.scale(name, 2)
            self.report(life, "start")
        if draws.chance(f"{name}/forged", 0.1) and self._alive(life):
            world.reach("a notice is forged")
            self.report(life, "end")
        kernel.sleep(seconds)
        if self._alive(life):
            self._end(life)

    def _alive(self, life: Life) -> bool:
        return life.ended is None and life.status == "InProgress"

    def _train(self, life: Life) -> None:
        life.trained = True
        self.cluster.run(life.name)
        self._world.lives.commit(life)
        self.report(life, "start")

    def _restart(self, life: Life) -> None:
        """A node is lost, and the operator starts the pods elsewhere."""
        if not self._alive(life):
            return
        self._world.reach("the operator restarts a job")
        self._world.deliver("react", node_event(), f"{life.name} node event")
        self._world.kernel.sleep(self._operator(life))
        if self._alive(life):
            self.cluster.restart(life.name)
            self._world.kernel.sleep(10.0)
        if self._alive(life):
            self.cluster.run(life.name)
            self.report(life, "start")

    def _preempt(self, life: Life) -> None:
        """Kueue takes the quota, and gives it back."""
        if not self._alive(life):
            return
        self._world.reach("a job is preempted and resumes")
        self.cluster.preempt(life.name)
        self.report(life, "end")
        self._world.kernel.sleep(120.0)
        if self._alive(life):
            self.cluster.admit(life.name)
            self._train(life)

    def _end(self, life: Life) -> None:
        world, fate, name = self._world, life.fate, life.name
        if fate.failure_class is FailureClass.STOPPED_BY_USER:
            world.reach("a person deletes a job")
            life.stopped_by.append("a user")
            life.end = fate
            self.cluster.remove(name)
            return
        silent = fate.secondary in {CLUSTER_FATES[key].secondary for key in _SILENT}
        if not silent:
            self.report(life, "end")
        elif fate.secondary == "NodeFault":
            world.deliver("react", node_event(), f"{name} node event")
        if fate.status == "Completed":
            world.put(f"output/{life.run}/{name}/output/output.tar.gz", manifest_archive())
        world.kernel.sleep(self._operator(life))
        if not self._alive(life):
            return
        life.end = fate
        if fate.status == "Completed":
            self.cluster.complete(name)
        else:
            self.cluster.fail(name, fate.secondary, fate.reason)

    def _operator(self, life: Life) -> float:
        draws = self._world.draws
        return draws.pick(draws.number(f"{life.name}/operator"), _OPERATOR_SECONDS)
