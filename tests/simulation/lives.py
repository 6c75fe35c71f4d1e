"""The lives of training jobs: what their programs do, how they end, and what is true about them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.commit import Commit, Member
from muster.contract.spec.places import HOME

if TYPE_CHECKING:
    from tests.simulation.world import World

_ENDS = {"Completed", "Failed", "Stopped"}


@dataclass(frozen=True)
class Fate:
    """How a job ends, if it is left alone, and the class of that end."""

    status: str
    failure_class: FailureClass | None
    reason: str = ""
    secondary: str = "Failed"
    trains: bool = True


FATES = {
    "completes": Fate("Completed", None),
    "user code": Fate("Failed", FailureClass.USER_CODE, "AlgorithmError: broken, exit code: 1"),
    "infrastructure": Fate("Failed", FailureClass.INFRASTRUCTURE, "InternalServerError: We encountered an error."),
    "capacity": Fate("Failed", FailureClass.CAPACITY, "CapacityError: no capacity", trains=False),
    "time-out": Fate("Stopped", FailureClass.TIMEOUT, secondary="MaxRuntimeExceeded"),
    "spot": Fate("Stopped", FailureClass.SPOT, secondary="MaxWaitTimeExceeded"),
    "client error": Fate("Failed", FailureClass.INVALID_REQUEST, "ClientError: no such image", trains=False),
    "stopped by a user": Fate("Stopped", FailureClass.STOPPED_BY_USER, secondary="Stopped"),
}
# What a replica says when a rule of `watch` ends its attempt: the class is that of a lost instance.
HANGS = Fate("Failed", FailureClass.INFRASTRUCTURE, "AlgorithmError: [hang] no step for 612 s, exit code: 80")
# Hours, too: a job that nothing stops must outlive the time within which it is to be stopped.
_CROWD_SECONDS = (300.0, 300.0, 300.0, 300.0, 0.1, 40.0, 700.0, 7_000.0)
"""Hundreds of runs that train one after the other, because of a small cap, end within a schedule's 30 days."""
_TRAINING_SECONDS = (*_CROWD_SECONDS, 20_000.0)
_DAY_SECONDS = (*_CROWD_SECONDS, 80_000.0)
_DAYS = 0.15
"""Of the longest jobs: one that is armed hundreds of times takes as long to simulate as ten schedules."""


@dataclass
class Life:
    name: str
    run: str
    rank: int
    attempt: int
    began: float
    fate: Fate
    status: str = "InProgress"
    ended: float | None = None
    stopped_by: list[str] = field(default_factory=list)
    """Who called StopTrainingJob while it ran."""
    end: Fate | None = None
    trained: bool = False
    """Of a job on a cluster: whether its pods have run."""
    place: str = HOME
    came_late: bool = False
    """It was created after the answer to its creation was lost, or after its attempt was recorded as not created."""
    was_missed: bool = False
    """When one call created it, another one of its replica's workflow was under way that had found no such job."""


@cache
def manifest_archive() -> bytes:
    manifest = {
        "version": 1,
        "checkpoint_s3_bucket": "s3://bucket/checkpoints/one/r0/",
        "round": 1,
        "checksum": "0" * 32,
        "metrics": {"loss": 1.0},
    }
    body = json.dumps(manifest).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(body)
        archive.addfile(member, io.BytesIO(body))
    return gzip.compress(packed.getvalue(), mtime=0)


@cache
def commit(run: str) -> bytes:
    """The commit of a run's first round."""
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
    found = Commit(run=run, round=1, committed_at="2026-01-01T00:01:00Z", count=1, members=(member,), epochs=(1,))
    return found.to_json()


class Lives:
    def __init__(self, world: World) -> None:
        self._world = world
        self.jobs: dict[str, Life] = {}
        self.late: set[str] = set()
        """The jobs whose creation took effect after its answer was lost."""

    def comes_late(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """A call takes effect now whose answer was lost before."""
        if operation in {"CreateTrainingJob", "CreateJob"}:
            self._world.reach("a job is created after its answer was lost")
            self.late.add(parameters["TrainingJobName"])

    def begin(self, name: str, place: str = HOME) -> Life:
        world = self._world
        _, run, rank, attempt = job_parts(name)
        fate = world.scenario.fate(name)
        life = Life(name, run, rank, attempt, world.kernel.seconds, fate, place=place, came_late=name in self.late)
        self.jobs[name] = life
        world.tell(name, "is created")
        world.judge.job_created(life)
        return life

    def ends(self, life: Life, status: str) -> None:
        life.status = status
        life.ended = self._world.kernel.seconds
        if life.end is None:  # its stop came through
            life.end = Fate("Stopped", FailureClass.STOPPED_BY_MUSTER, secondary="Stopped")
        self._world.tell(life.name, f"has ended as {status}")

    def of(self, run: str, rank: int | None = None) -> list[Life]:
        """The jobs of a run, or of one of its replicas."""
        return [life for life in self.jobs.values() if life.run == run and rank in {None, life.rank}]

    def living(self, run: str, rank: int | None = None) -> list[Life]:
        """Those of them that have not ended."""
        return [life for life in self.of(run, rank) if life.ended is None]

    def changed(self, detail: dict[str, Any], place: str = HOME) -> None:
        """A job has changed its status; called before anybody learns of it."""
        world, name = self._world, detail["TrainingJobName"]
        if name not in self.jobs:
            life = self.begin(name, place)
            world.kernel.spawn(name, lambda: self._live(life))
            return
        life = self.jobs[name]
        status = detail["TrainingJobStatus"]
        if status == life.status:
            return
        life.status = status
        world.tell(name, f"is {status}/{detail['SecondaryStatus']}")
        if status in _ENDS:
            self.ends(life, status)

    def _live(self, life: Life) -> None:
        world = self._world
        kernel, name = world.kernel, life.name
        training = world.cloud.training if world.places is None or life.place == HOME else world.places.training(life)
        draws, fate = world.draws, life.fate
        kernel.sleep(20.0)
        if life.status == "InProgress" and not fate.trains:
            life.end = fate
            training.fail(name, fate.reason)
        if life.status != "InProgress":
            return
        training.advance(name)
        kernel.sleep(30.0)
        if life.status != "InProgress":
            return
        training.train(name)
        self.commit(life)
        longest = _DAY_SECONDS if draws.share(f"{name}/day") < _DAYS else _TRAINING_SECONDS
        kernel.sleep(draws.pick(f"{name}/seconds", _CROWD_SECONDS if world.scenario.is_crowded else longest))
        if life.status != "InProgress":
            return
        life.end = fate
        if fate.status == "Completed":
            world.put(f"output/{life.run}/{name}/output/output.tar.gz", manifest_archive(), life.place)
            training.complete(name)
        elif fate.failure_class is FailureClass.STOPPED_BY_USER:
            world.reach("a user stops a job")
            life.stopped_by.append("a user")
            training.stop_by_user(name)
        elif fate.status == "Stopped":
            training.end_stopped(name, fate.secondary)
        else:
            training.fail(name, fate.reason)

    def commit(self, life: Life) -> None:
        root = life.run.partition("-x")[0]
        self._world.put(f"rendezvous/{root}/commits/00000001.json", commit(root))


def job_parts(name: str) -> tuple[str, str, int, int]:
    """Prefix, run, rank and attempt in a job's name."""
    prefix, _, rest = name.partition("-")
    run, rank, attempt = rest.rsplit("-", 2)
    return prefix, run, int(rank[1:]), int(attempt[1:])
