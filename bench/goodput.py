"""What share of the training counts where instances fail: the real control plane and rendezvous, in virtual time.

The control plane decides over the AWS in memory what follows each lost job; the replicas meet in an S3 in memory with
their front end, claims, rounds and snapshots. Time is virtual, so hours take seconds. What neither is measured nor
follows from Muster is assumed (`Assumed`). Capacity counts as paid all the time, as a reservation is: also while a job
is found lost, waits for its instances, starts and loads.

The peers lose the same instances at the same times. Data parallelism that restarts loses what it has trained since its
checkpoint. Elastic data parallelism trains on with the rest, after a new agreement of all at each loss and return.
Decoupled DiLoCo (arXiv 2604.21428) gives goodputs without the failure rate: it is chosen here as the one at which
elastic data parallelism of 8 parts reaches the 58 % of that paper.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench.table import Row
from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire import rendezvous_keys
from tests.exploration.schedules import fair
from tests.exploration.simulated import scaled, simulated
from tests.exploration.trainers import ExploredDiLoCo, Silent
from tests.exploration.world import Process, Setting, World
from tests.memory.harness import ControlHarness
from tests.support.scaled_rounds import GRACE_SECONDS, scaled_rounds

_HOUR = 3_600.0
_LOST = "InternalServerError: We encountered an internal error. Please try again."
_GOODPUT_OF_ELASTIC = 0.58  # arXiv 2604.21428, 8 parts
_NEVER = 10**9  # rounds


@dataclass(frozen=True)
class Assumed:
    """What is not measured: seconds, but for `steps`, the inner steps of a round.

    Attributes:
        notice: from the loss of an instance to the end of its job, of which an event tells.
        start: from CreateTrainingJob to the first line of the program, least and most.
        load: for which a joiner loads a snapshot and the rounds after it.
        outage: of a process that is frozen or cut off, least and most.
    """

    step: float = 10.0
    steps: int = 30
    notice: float = 60.0
    start: tuple[float, float] = (180.0, 420.0)
    load: float = 30.0
    outage: tuple[float, float] = (20.0, 60.0)


# SageMaker's own times. A round of five minutes is that of INTELLECT-1 and Covenant, within a factor of eight.
FLEET = Assumed()
# ft-diloco has 32 processes on one machine, a fault each 29 s for half an hour, of which 27 of 62 are kills, the others
# freezes and partitions. How long its rounds and restarts take is not published.
ONE_MACHINE = Assumed(step=4.0, steps=25, notice=1.0, start=(10.0, 20.0), load=2.0)
# A peer's agreement on who trains on: found after `notice`, and then processes and shards are laid out anew.
REFORM = 240.0
CHECKPOINT = 1_800.0  # between two checkpoints of data parallelism that restarts


@dataclass(frozen=True)
class Fault:
    """What befalls a replica at a time: its process is killed, frozen or cut off from S3."""

    at: float
    rank: int
    kind: str = "kill"


@dataclass(frozen=True)
class Training:
    """What became of a run: its commits, and how many replicas were able to contribute to each."""

    commits: Sequence[Commit]
    live: Sequence[int]
    counted: float  # replica seconds


def run() -> list[Row]:
    """The rows: see the module's docstring for what is real and what is assumed."""
    rate = _calibrated()
    rows = [Row("failures an hour, all replicas together", rate, "1/h", note="elastic data parallelism of 8: 58 %")]
    for replicas, aim in ((2, None), (4, None), (8, ">= 0.88"), (16, ">= 0.93")):
        rows += _goodput_rows(replicas, rate, aim)
    rows += _churn_rows()
    rows += _scaled_rows()
    return rows


def faults(rate: float, replicas: int, seconds: float, seed: int, kinds: Sequence[str] = ("kill",)) -> list[Fault]:
    """Faults at random times, `rate` an hour for all replicas together."""
    rng, at, found = random.Random(seed), 0.0, []  # noqa: S311 - the same faults in every run
    while (at := at + rng.expovariate(rate / _HOUR)) < seconds:
        found.append(Fault(at, rng.randrange(replicas), rng.choice(kinds)))
    return found


class Fleet:
    """One run of so many replicas: the control plane that reruns them, and the world in which they train."""

    def __init__(self, replicas: int, assumed: Assumed, seed: int, grace: float = GRACE_SECONDS) -> None:
        """`grace`: the longest for which a quorum, half of the replicas, waits for the others, in seconds."""
        self._assumed, self._rng = assumed, random.Random(seed)  # noqa: S311 - the same starts in every run
        least = max(1, replicas // 2)
        setting = Setting(
            replicas=replicas,
            min_participants=least,
            rounds=_NEVER,
            snapshot_rounds=10,
            grace_seconds=grace,
            timeout_seconds=_HOUR,
            count=64,
        )
        self._world = World(setting, self._train)
        self._harness = ControlHarness()
        self._due: list[tuple[float, str, int, int]] = []
        self._attempts = [1] * replicas
        self._live: list[int] = []
        self._joined: list[Process] = []
        self._trained: list[Process] = []  # those that had joined when the last round was committed
        self._spec = {
            "replicas": replicas,
            "on_replica_failure": "continue",
            "min_replicas": least,
            "reruns": {"infrastructure": {"max_reruns": 500, "delay_seconds": 0, "max_delay_seconds": 0}},
        }

    def train(self, seconds: float, troubles: Sequence[Fault]) -> Training:
        """Let the run last so long."""
        world, waiting = self._world, list(troubles)
        with simulated(), scaled(world.setting), self._harness.installed():
            self._harness.plan(**self._spec)
            for rank in range(world.setting.replicas):
                self._launch(rank, 1)
            try:
                while world.seconds < seconds:
                    self._proceed(waiting)
            finally:
                world.end()
        assert not world.problems, world.problems
        return self._training()

    def _proceed(self, waiting: list[Fault]) -> None:
        """One request of a process, or what happens before it."""
        world = self._world
        able = [process for process in world.living if not process.is_stuck]
        chosen = fair(world, able) if able else None
        times = [*(fault.at for fault in waiting[:1]), *(due[0] for due in self._due)]
        if chosen is not None and (chosen.wakes_at or world.seconds) <= min(times, default=float("inf")):
            commits = len(world.steps_at_commits)
            world.take_step(chosen)
            if len(world.steps_at_commits) > commits:
                self._live.append(sum(self._could_contribute(process) for process in self._trained))
                self._trained = [process for process in self._joined if process in world.living]
            if chosen.ended:
                self._due.append((world.seconds + self._assumed.notice, "notice", chosen.rank, chosen.attempt))
            return
        world.seconds = max(world.seconds, min(times))
        if waiting and waiting[0].at <= world.seconds:
            self._befall(waiting.pop(0))
        for due in [due for due in self._due if due[0] <= world.seconds]:
            self._due.remove(due)
            self._happen(*due[1:])

    def _could_contribute(self, process: Process) -> bool:
        """Whether a process that had joined before the last commit is there, and neither frozen nor cut off."""
        away_until = max(process.stalls_until, process.cut_off_until)
        return not process.ended and away_until <= self._world.seconds

    def _befall(self, fault: Fault) -> None:
        world = self._world
        for process in [process for process in world.living if process.rank == fault.rank]:
            if fault.kind == "kill":
                world.kill(process)
                due = world.seconds + self._assumed.notice
                self._due.append((due, "notice", fault.rank, process.attempt))
            elif fault.kind == "freeze":
                process.stall(self._rng.uniform(*self._assumed.outage))
            else:
                process.cut_off_until = world.seconds + self._rng.uniform(*self._assumed.outage)

    def _happen(self, what: str, rank: int, attempt: int) -> None:
        if what == "start":
            process = Process(self._world, rank, attempt)
            self._world.processes.append(process)
            self._world.living.append(process)
        elif what == "notice":
            self._lose(rank, attempt)
        else:
            self._launch(rank, attempt)

    def _lose(self, rank: int, attempt: int) -> None:
        """The event of the lost job reaches the control plane, which decides."""
        self._keep_time()
        job = self._harness.job(rank, attempt)
        self._harness.cloud.training.fail(job, _LOST)
        self._harness.react(self._harness.last_event(job))
        decided = self._harness.decided(rank)
        assert decided["next"] == "rerun", decided
        self._due.append((self._world.seconds + decided["delay_seconds"], "launch", rank, decided["attempt"]))

    def _launch(self, rank: int, attempt: int) -> None:
        self._keep_time()
        self._harness.arm(rank, attempt)
        self._harness.cloud.training.train(self._harness.job(rank, attempt))
        self._due.append((self._world.seconds + self._rng.uniform(*self._assumed.start), "start", rank, attempt))

    def _keep_time(self) -> None:
        clock = self._harness.cloud.clock
        clock.advance(max(0.0, self._world.seconds - clock.monotonic()))

    def _train(self, process: Process, context: RoundContext) -> None:
        """A trainer: one sample in each inner step, through the front end for arrays."""
        process.wait(process.stop, self._assumed.load)
        rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
        parameters = np.zeros(process.world.setting.count, np.float32)
        algorithm = Algorithm(sync_every=self._assumed.steps)
        own = {"trainer_state": None, "checkpoint_dir": None}
        outer = ExploredDiLoCo(rendezvous, parameters, algorithm, None, 0, **own)
        self._joined.append(process)
        while not process.stop.is_set():
            process.wait(process.stop, self._assumed.step)
            parameters -= np.float32(1e-3)
            outer.step(1.0)
        raise StoppedError

    def _training(self) -> Training:
        store = self._world.store
        commits: list[Commit] = []
        while store.exists(key := rendezvous_keys.commit(len(commits) + 1)):
            commits.append(Commit.from_json(store.written[key], key))
        return Training(commits, self._live, sum(commit.counted for commit in commits) * self._assumed.step)


def _goodput_rows(replicas: int, rate: float, aim: str | None) -> Iterator[Row]:
    seconds = 24 * _HOUR
    troubles = faults(rate, replicas, seconds, seed=replicas)
    found = Fleet(replicas, FLEET, seed=1).train(seconds, troubles)
    share = found.counted / (replicas * seconds)
    elastic = elastic_goodput(troubles, replicas, seconds)
    note = f"{len(troubles)} failures in 24 h, {len(found.commits)} rounds; peer: elastic data parallelism"
    yield Row(f"goodput, M = {replicas}", share, "share", aim, elastic, note)
    least = ">= 0.25" if replicas == 8 else None
    yield Row(f"more than elastic data parallelism, M = {replicas}", share - elastic, "share", least)
    restarts = restart_goodput(troubles, seconds)
    yield Row(f"more than data parallelism that restarts, M = {replicas}", share - restarts, "share", None, restarts)


def elastic_goodput(troubles: Sequence[Fault], parts: int, seconds: float) -> float:
    """Of elastic data parallelism: at each loss and return all wait for a new agreement; the rest trains on."""
    down = FLEET.notice + fmean(FLEET.start) + FLEET.load
    changes = sorted([(fault.at, -1) for fault in troubles] + [(fault.at + down, 1) for fault in troubles])
    counted, live, free_at, now = 0.0, parts, 0.0, 0.0
    for at, change in [*changes, (seconds, 0)]:
        end = min(at, seconds)
        counted += max(0.0, end - max(now, free_at)) * max(0, live) / parts
        live, now = live + change, end
        if change:
            free_at = max(free_at, at + REFORM + (FLEET.notice if change < 0 else 0.0))
    return counted / seconds


def restart_goodput(troubles: Sequence[Fault], seconds: float) -> float:
    """Of data parallelism that restarts: each failure costs what was trained since the checkpoint, and a start."""
    counted, begins = 0.0, fmean(FLEET.start) + FLEET.load
    for at in [*(fault.at for fault in troubles), seconds]:
        trained = max(0.0, at - begins)
        counted += trained if at == seconds else trained // CHECKPOINT * CHECKPOINT
        if at >= begins:
            begins = at + FLEET.notice + fmean(FLEET.start) + FLEET.load
    return counted / seconds


def _calibrated() -> float:
    """The failures an hour at which elastic data parallelism of 8 parts has the published goodput."""
    seconds, low, high = 24 * _HOUR, 0.0, 100.0
    for _ in range(20):
        middle = (low + high) / 2
        found = fmean(elastic_goodput(faults(middle, 8, seconds, seed), 8, seconds) for seed in range(20))
        low, high = (middle, high) if found > _GOODPUT_OF_ELASTIC else (low, middle)
    return round(high, 2)


def _churn_rows() -> Iterator[Row]:
    """32 replicas at 125 faults an hour, beside the same run without any."""
    seconds, replicas = 4 * _HOUR, 32
    kinds = ("kill",) * 27 + ("freeze",) * 18 + ("cut off",) * 17
    undisturbed = Fleet(replicas, ONE_MACHINE, seed=2).train(seconds, ())
    troubles = faults(125, replicas, seconds, seed=3, kinds=kinds)
    found = Fleet(replicas, ONE_MACHINE, seed=2).train(seconds, troubles)
    note = f"{len(troubles)} faults in 4 h: kills, freezes and partitions as in ft-diloco, whose figure is 0.977"
    share = len(found.commits) / len(undisturbed.commits)
    yield Row("commits at 125 faults an hour, N = 32", share, "of undisturbed", ">= 0.977", 0.977, note)
    taken = [len(commit.members) / live for commit, live in zip(found.commits, found.live, strict=True) if live]
    yield Row("live replicas in a commit, on average", fmean(taken), "share", ">= 0.95", 0.5)
    yield Row("live replicas in a commit, the worst", min(taken), "share")
    # As in ft-diloco, where 16 of 32 take part in a round.
    undisturbed = Fleet(replicas, ONE_MACHINE, seed=2, grace=0.0).train(seconds, ())
    found = Fleet(replicas, ONE_MACHINE, seed=2, grace=0.0).train(seconds, troubles)
    share = len(found.commits) / len(undisturbed.commits)
    note = "the same faults; a round waits for nobody once it has 16, as in ft-diloco (`rendezvous.grace_seconds: 0`)"
    yield Row("commits at 125 faults an hour, the first 16 of 32", share, "of undisturbed", ">= 0.977", 0.977, note)


def _scaled_rows() -> Iterator[Row]:
    """4 replicas, then 16, then 2, which leave in the middle of a phase."""
    found = scaled_rounds(4, [(1_500.0, 16), (4_000.0, 2)], rounds=18, step=FLEET.step, steps=FLEET.steps)
    usual, name = FLEET.step * FLEET.steps, "4, 16 and 2 replicas: "
    yield Row(f"{name}others that restarted or failed", len(found.failed), "replicas", "== 0")
    different = max(len(states) for states in found.states.values())
    yield Row(f"{name}different parameters after a round", different, "states", "== 1")
    longest = found.longest_round / (usual + GRACE_SECONDS)
    note = f"{found.longest_round:.0f} s: inner steps of {usual:.0f} s and a grace window of {GRACE_SECONDS:.0f} s"
    yield Row(f"{name}the longest round", longest, "of a round and its grace", "<= 1.1", note=note)
    late = sum(passed > 0 for passed in found.passed.values())
    note = f"{late} of {len(found.passed)} joiners were left out once"
    yield Row(f"{name}rounds without a joiner that is ready", max(found.passed.values()), "rounds", "<= 1", note=note)
