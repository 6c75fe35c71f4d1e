"""Replicas of which one activity runs at a time, from one request to S3 to the next, as a schedule says.

Time is virtual: it passes only when a process that waits is chosen, and then just as far as that one waits.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
from greenlet import getcurrent

from muster.contract.run.commit import HOME, Commit
from muster.contract.run.notices import NOTICES, Notice, NoticeKind
from muster.contract.spec.policies import OnEarlyFinish
from muster.options import offers
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.codecs import codec_named
from muster.replica.group.board import InnerGroup
from muster.replica.replica_errors import DivergedError, FencedError, GroupError, StoppedError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.quorum import Quorum, needed_of
from muster.replica.rounds.round_context import OfferedPlaces, RoundContext, Stops
from muster.replica.rounds.suspicions import Suspicions
from muster.replica.store.checkpoints import State
from muster.replica.store.pace import Pace
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, Floats, decode_header
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import ClaimDocument, ContributionHeader
from tests.exploration.activities import Activity, Killed, Serial, Workers, current
from tests.exploration.groups import Group
from tests.exploration.pieces import Pieces
from tests.exploration.simulated_s3 import Bucket
from tests.support.decoded_blocks import decode_blocks
from tests.support.rendezvous_keys import is_like, round_of

RUN = "explored"
FOR_EVER = 1e9  # seconds: no schedule is that long, so a process that times out waited in vain
LATE_STEPS = (5, 60, 400)  # how many steps after its request a late effect comes
OVERTAKEN_SECONDS = 60.0  # the longest time that a commit is on its way while a rank is rerun
LAUNCHER_STEPS = (0, 3, 30)  # how many steps of a replica after the end of one process the others get SIGTERM
STATES = ("snapshots", "torchft")
DATA = ("contributions", "reduced", "sums", *STATES)
IS_PART = re.compile(rendezvous_keys.CONTRIBUTIONS + r"\d{5}/\d{8}-\d{6}-\d{4}")

# A front end's loop in one process: trains to the last round.
Trainer = Callable[["Process", RoundContext], None]


@dataclass(frozen=True)
class Setting:
    """The run that is explored."""

    replicas: int = 3
    min_participants: int = 2
    rounds: int = 4
    snapshot_rounds: int = 2
    grace_seconds: float = 2.0
    timeout_seconds: float = FOR_EVER
    count: int = 1024  # four blocks: a shard for each of up to four members
    # Processes of a replica: the first attempt of rank r has the r-th number, and each attempt the next one.
    sizes: tuple[int, ...] = (1,)
    connections: int = 1  # requests of a process at a time; 1: in a fixed order
    shard_bytes: int = 64 * 2**20  # smaller: several shards for each member
    gathers: int | None = None  # rounds of up to so many members have no shards; None: as their bytes say
    poisoned: tuple[str, ...] = ()  # what is created below these keys is damaged
    poisoned_at: int = 5000  # the byte that is damaged
    declines: tuple[int, int] | None = None  # rank and round of the one pseudo-gradient that has a NaN
    flips: tuple[int, int] | None = None  # rank and round before which one bit of its parameters changes
    overtaken: tuple[int, int] | None = None  # rank that is rerun while this round's commit by another is on its way
    outlier: tuple[int, int] | None = None  # rank and round of the one step that is a thousand times as large
    codec: str = "fp32"  # that of the algorithm
    statistics: int = 0  # elements at the end that are averaged, for the front end `diloco`
    algorithm: str = "at once"  # of `trainers.ALGORITHMS`, for the front end `diloco`
    fragments: int = 1  # its number
    paces: tuple[float, ...] = ()  # there: seconds of an inner step of each rank; none: they take no time
    skew_seconds: float = 0.0  # how much the clock of rank 0's machine is ahead of the others'
    hides_missing: bool = False  # S3 answers 403 for a missing object: the role may not list the bucket
    fault_rate: float = 0.0  # the share of requests that fail once
    reruns: int = 0  # how many processes of a rank the control plane starts again after they failed
    front_end: str = "arrays"
    on_early_finish: OnEarlyFinish | None = None
    clusters: tuple[tuple[int, int], ...] = ()  # spans of ranks on clusters: a round that misses them is reported
    share: float | None = None  # of the expected, for which a round waits longer
    start: int | None = None  # of an elastic run: the number of seats that are taken at first
    where: tuple[str, ...] = ()  # the place of each rank; none: there is one place
    moves: bool = False  # whether a rerun trains at the next rank's place
    latency_seconds: float = 0.0  # of a request from another place to the run's bucket
    early: tuple[tuple[int, int], ...] = ()  # ranks whose trainers return after an earlier round, with that round

    def last_round(self, rank: int) -> int:
        """After which round the trainer of `rank` returns."""
        return dict(self.early).get(rank, self.rounds)


@dataclass
class Choices:
    """What a schedule decides beside the order of processes: recorded, or repeated from a record (0: the default)."""

    rng: random.Random | None = None
    orders: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    activities: list[int] = field(default_factory=list)
    _fault: int = 0
    _activity: int = 0

    def fault(self, rate: float, kinds: int) -> int:
        """0 for none, or the number of the fault."""
        self._fault += 1
        if self.rng is None:
            return self.faults[self._fault - 1] if self._fault <= len(self.faults) else 0
        found = self.rng.randrange(kinds) + 1 if self.rng.random() < rate else 0
        self.faults.append(found)
        return found

    def activity(self, number: int) -> int:
        """Which of a process's activities continues."""
        self._activity += 1
        if self.rng is None:
            found = self.activities[self._activity - 1] if self._activity <= len(self.activities) else 0
            return min(found, number - 1)
        found = self.rng.randrange(number)
        self.activities.append(found)
        return found


@dataclass(frozen=True)
class Late:
    """A PUT whose client has given up before S3 executes it."""

    step: int
    process: Process
    key: str
    body: bytes
    looks: ClaimLooks
    bucket: Bucket


@dataclass(frozen=True)
class ClaimLooks:
    """When a process has looked at claims, in steps.

    Attributes:
        own: its last look at its own claim.
        before: the look before that.
        others: the last look at each claim of others, by key.
    """

    own: int = 0
    before: int = 0
    listed: int = 0  # its last look for the claims that were announced
    others: Mapping[str, int] = field(default_factory=dict)

    def noting(self, key: str, step: int, own: str) -> ClaimLooks:
        """With a look at `key`; `own`: what its own claims' keys begin with."""
        if key.startswith(own):
            return ClaimLooks(step, self.own, self.listed, self.others)
        return ClaimLooks(self.own, self.before, self.listed, {**self.others, key: step})

    def of(self, key: str) -> int:
        """The look at a claim that belongs to the last one at its own: they are made side by side."""
        look = self.others.get(key, 0)
        return look if look > self.before else self.own


class Process:
    """One process of one replica, with its own store, clock and pool."""

    def __init__(self, world: World, rank: int, attempt: int) -> None:
        self.world, self.rank, self.attempt = world, rank, attempt
        self.number = len(world.processes) + 1
        self.name = f"r{rank}a{attempt}.{1 + sum(other.rank == rank for other in world.processes)}"
        self.activities: list[Activity] = []
        self.place = world.place_of(rank, attempt)
        self.steps = 0
        self.killed = self.ended = self.was_stopped = self.was_cut_off = False
        self.error: BaseException | None = None
        self.label = "start"
        sizes = world.setting.sizes
        self.size = sizes[(rank + attempt - 1) % len(sizes)]
        self.group = Group(self.size)
        self.lost: set[int] = set()  # processes of the replica that were killed alone
        self._ends: dict[int, BaseException | None] = {}
        self._terminated_at = inf  # the step at which the launcher passes on that a process has ended
        self._works: list[list[Floats]] = [[] for _ in range(self.size)]
        self.round = 0
        self.left_out = 0
        self.looks = ClaimLooks()
        self.path = ""  # of its latest request
        self.faults: Counter[str] = Counter()  # of its requests, by path
        self.stalls_until = self.cut_off_until = 0.0
        self.stop = threading.Event()
        self.begun_after = len(world.steps_at_commits)  # the rounds that were committed when it started
        for inner in range(self.size):
            Activity(self, partial(self._live, inner), "start", inner)
        self._look()

    def is_dead(self, inner: int) -> bool:
        """Whether this process of the replica is gone."""
        return self.killed or inner in self.lost

    def work(self, inner: int, round_: int) -> Floats:
        """The pseudo-gradient of the replica's next inner phase: the same in all its processes."""
        if self.world.overtaking is self:
            self.world.has_overtaken()
        own = self._works[inner]
        other = next((works for works in self._works if len(works) > len(own)), None)
        own.append(self.world.work(self.rank, round_) if other is None else other[len(own)])
        return own[-1]

    # What its store and its clock call.

    def asked(self, label: str) -> None:
        world = self.world
        world.steps += 1
        self._steps()
        self.path = label.partition(" ")[2]
        if world.trace is not None:
            world.trace.append(f"{world.steps:6d} {world.seconds:9.2f}s {self.name:8s} {label}")

    def answered(self, path: str) -> None:
        """It learns what there is at `path`. A request that fails is no look: its next try belongs to the same look, of
        which other requests, made side by side, may have been answered before it."""
        if path.startswith("announced/"):
            self.looks = replace(self.looks, listed=self.world.steps)
        if path.startswith("claims/"):
            self.looks = self.looks.noting(path, self.world.steps, f"claims/{self.rank:05d}/")

    @property
    def is_cut_off(self) -> bool:
        if self.world.seconds >= self.cut_off_until:
            return False
        self.was_cut_off = True
        return True

    def monotonic(self) -> float:
        return self.world.seconds + (0.0 if self.rank else self.world.setting.skew_seconds)

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        if not stop.is_set():
            # Time passes between two looks: a rest that floating point rounds away would be one for ever.
            current().pause("wait", self.world.seconds + max(seconds, 1e-6))
            self._steps()
        return stop.is_set()

    # What the world calls.

    def run(self) -> None:
        """Let one of its activities run up to its next request."""
        world = self.world
        if self.wakes_at is not None and self.wakes_at > world.seconds:
            world.seconds = self.wakes_at
        if self.steps >= self._terminated_at:
            self._terminated_at = inf
            self.terminate()
        activity = self.activities[0] if len(self.activities) == 1 else self._chosen()
        activity.wakes_at = None
        activity.switch()
        if activity.dead:
            self.activities.remove(activity)
        self._look()

    def _chosen(self) -> Activity:
        """Which of its activities goes on: one that does not wait for a time, or the one that wakes first."""
        ready = [activity for activity in self.activities if not activity.is_blocked]
        awake = [activity for activity in ready if activity.wakes_at is None]
        if not awake:
            return min(ready, key=lambda activity: activity.wakes_at or 0.0)
        return awake[self.world.choices.activity(len(awake))] if len(awake) > 1 else awake[0]

    def kill(self) -> None:
        """End it before its next request."""
        if self.ended:
            return
        self.killed, label = True, self.label
        for activity in reversed(self.activities):
            if activity:
                activity.throw(Killed)
        self.activities.clear()
        self.ended, self.error = True, Killed()
        self._look()
        self.label = label  # what it was about to do

    def lose(self, inner: int) -> None:
        """End one process of the replica before its next request; the launcher then ends the others."""
        if inner in self._ends:
            return
        self.lost.add(inner)
        for activity in [found for found in reversed(self.activities) if found.inner == inner]:
            if activity:
                activity.throw(Killed)
            self.activities.remove(activity)
        self._end(inner, Killed())
        self._look()

    def sigterm(self) -> None:
        self.was_stopped = True
        self.terminate()

    def terminate(self) -> None:
        """SIGTERM reaches all processes of the replica."""
        self.stop.set()
        for activity in self.activities:
            if activity.label == "wait":
                activity.wakes_at = None
        self._look()

    def stall(self, seconds: float) -> None:
        self.stalls_until = self.world.seconds + seconds
        self.world.has_stalled = True
        self._look()

    def _look(self) -> None:
        """What it does next, when, and whether it can do anything at all."""
        first, wakes_at = None, inf
        for activity in self.activities:
            awaited = activity.waits_for
            if awaited is None or awaited.is_settled:
                first = activity if first is None else first
                if (wakes := activity.wakes_at or 0.0) < wakes_at:
                    wakes_at = wakes
        self.is_stuck = first is None
        self.label = "nothing" if first is None else first.label
        if self.stalls_until > self.world.seconds:
            wakes_at = max(wakes_at, self.stalls_until)
        self.wakes_at = wakes_at or None

    def _steps(self) -> None:
        self.steps += 1
        self.world.steps_of[self.rank] += 1

    def _end(self, inner: int, error: BaseException | None) -> None:
        """One process of the replica has ended. The replica's error is the first one that is not another's effect."""
        self._ends[inner] = error
        if error is not None:
            self.group.is_broken = True
            if self._terminated_at == inf:
                self._terminated_at = self.steps + LAUNCHER_STEPS[self.steps % len(LAUNCHER_STEPS)]
        if len(self._ends) == self.size:
            errors = [found for found in self._ends.values() if found is not None]
            self.error = min(errors, key=lambda found: isinstance(found, GroupError), default=None)
            self.ended = True

    def _live(self, inner: int) -> None:
        setting = self.world.setting
        pool: Any = Serial() if setting.connections == 1 else Workers(self, setting.connections, inner)
        fewest, grace = setting.min_participants, setting.grace_seconds
        quorum = Quorum(setting.replicas, fewest, grace, setting.share, setting.start)
        try:
            store = S3ObjectStore("bucket", "", Pace(setting.timeout_seconds))
            context = RoundContext(store, RUN, quorum, setting.timeout_seconds, Stops(self.stop), pool, self)
            context = replace(context, snapshot_rounds=setting.snapshot_rounds)
            context = replace(context, trained_by=RUN, on_early_finish=setting.on_early_finish)
            if setting.where:
                near = store if self.place == HOME else S3ObjectStore(self.place, "", Pace(setting.timeout_seconds))
                offer = next(offers("replica.places", OfferedPlaces))
                context = replace(context, places=offer.open(self.place, near))
            if setting.clusters:
                place = S3ObjectStore("bucket", f"{NOTICES}{RUN}/")
                context = replace(context, suspicions=Suspicions(place, RUN, setting.clusters))
            if self.size > 1:
                group = InnerGroup(inner, self.size, inner)
                context = replace(context, group=group, board=self.group, link=self.group.link("rounds", inner))
            self.world.trainer(self, context)
        except BaseException as error:
            # The judge decides whether this was to be expected.
            found: BaseException | None = error
        else:
            found = None
        if inner not in self.lost:
            self._end(inner, found)


class World:
    """The bucket, the time, the processes, and what was observed."""

    def __init__(self, setting: Setting, trainer: Trainer, choices: Choices | None = None) -> None:
        self.setting, self.trainer = setting, trainer
        self.choices = choices or Choices()
        self.scheduler = getcurrent()
        self.seconds = 0.0
        self.steps = 0
        self.steps_of = [0] * setting.replicas  # of the processes of each rank together, their waits included
        self.steps_at_commits: list[list[int]] = []  # `steps_of` when each round was committed
        self.has_stalled = False
        self.closed: set[int] = set()  # ranks whose seats are parked: no process is started again
        self.store = Bucket(lambda: self.seconds)
        self.near = {place: Bucket(lambda: self.seconds) for place in set(setting.where) - {HOME}}
        self.parted_until: dict[str, float] = {}  # of places that cannot reach the run's bucket
        self.lost: set[int] = set()  # ranks of which a place's bucket has lost what they gave
        self.crossed: Counter[tuple[str, int, bool]] = Counter()  # bytes of values by place, round, and whether up
        self.processes: list[Process] = []
        self.living: list[Process] = []
        self.lasts: dict[int, Process] = {}  # of each rank the process that ended last
        self.timers: list[tuple[float, int]] = []  # when the control plane starts a process of which rank
        self.lates: list[Late] = []
        self.means = defaultdict[int, Pieces](lambda: Pieces(setting.count))
        self.states = defaultdict[int, Pieces](lambda: Pieces(2 * setting.count))
        self.problems: list[str] = []
        self.sound: dict[str, bytes] = {}
        self.seen: Counter[str] = Counter()
        self.flipped: set[Process] = set()
        self.gave: dict[tuple[int, int, int], list[int]] = {}  # by round, rank and claim: the items of the steps
        self.left: dict[int, tuple[int, list[list[int]]]] = {}  # of each rank that was stopped: its position, its items
        self.folders: dict[str, dict[State, bytes]] = {}  # the replicas' own states, by folder and kind
        self.trace: list[str] | None = None
        self._created: dict[str, int] = {}
        self._shards: dict[int, list[str]] = {}
        self._works = 0
        self._declined = self._exploded = self._is_overtaken = False
        self.overtaking: Process | None = None
        self.sent: dict[tuple[int, int, int, int], Floats] = {}  # by round, rank, claim and first element: see `ledger`
        self._ends_run = 0  # the round with which the run ended by its rule

    def start(self, rank: int, *, reruns: bool = False) -> Process:
        """A new process of `rank`, beside existing ones: in its last attempt (a restart), or in the next one."""
        self.closed.discard(rank)
        self.seen["a replica comes after all others are gone"] += bool(self.steps_at_commits) and not self.living
        attempt = max((process.attempt for process in self.processes if process.rank == rank), default=0)
        process = Process(self, rank, attempt + 1 if reruns or not attempt else attempt)
        self.processes.append(process)
        self.living.append(process)
        return process

    def place_of(self, rank: int, attempt: int) -> str:
        """Where a rank's attempt trains."""
        where = self.setting.where
        return where[(rank + (attempt - 1 if self.setting.moves else 0)) % len(where)] if where else HOME

    def part(self, place: str, seconds: float) -> None:
        """A place cannot reach the run's bucket for a while."""
        self.parted_until[place] = self.seconds + seconds
        self.seen["a place is parted from the run's bucket"] += 1

    def latency(self, process: Process, *, is_home: bool) -> float:
        """Seconds until a request of a process is answered: to the run's bucket, or to the place's."""
        return self.setting.latency_seconds if is_home and process.place != HOME else 0.0

    def moved(self, process: Process, path: str, size: int, *, is_home: bool, up: bool) -> float:
        """When so many bytes have moved. Here they take no time."""
        return self.seconds

    def cross(self, process: Process, path: str, size: int, *, up: bool) -> None:
        """Bytes move between a place and the run's bucket: of values those behind the headers."""
        if process.place != HOME and path.startswith((rendezvous_keys.SUMS, rendezvous_keys.REDUCED)):
            self.crossed[process.place, round_of(path), up] += max(0, size - HEADER_BYTES)

    def take_step(self, process: Process) -> None:
        process.run()
        if process.ended:
            self.bury(process)

    def kill(self, process: Process) -> None:
        process.kill()
        self.seen["killed"] += 1
        self.bury(process)

    def close(self, rank: int) -> None:
        """The seat of `rank` is parked: its processes get SIGTERM, and none follows."""
        self.closed.add(rank)
        for process in [found for found in self.living if found.rank == rank]:
            process.sigterm()
            self.seen["a seat is closed while its replica trains"] += 1

    def lose(self, process: Process, inner: int) -> None:
        """One process of a replica dies, the replica's only one perhaps."""
        process.lose(inner % process.size)
        self.seen["one process of several is killed"] += process.size > 1
        if process.ended:
            self.bury(process)

    def bury(self, process: Process) -> None:
        """Note a process's end; one that failed is started again, as the control plane does."""
        if process in self.living:
            self.living.remove(process)
        self.lasts[process.rank] = process
        if self.trace is not None:
            self.trace.append(f"{self.steps:6d} {self.seconds:9.2f}s {process.name:8s} ended: {process.error!r}")
        self.seen[f"ended: {_end_of(process.error)}"] += 1
        alone = not any(other.rank == process.rank for other in self.living)
        tries = sum(other.rank == process.rank for other in self.processes)
        if (
            alone
            and process.rank not in self.closed
            and tries <= self.setting.reruns
            and process.error is not None
            and not process.killed
        ):
            self.seen["rerun after a failure"] += 1
            self.timers.append((max(self.seconds, self.parted_until.get(process.place, 0.0)), process.rank))

    def happen(self) -> None:
        """What is due by now: starts, and the effects of late requests."""
        for timer in [timer for timer in self.timers if timer[0] <= self.seconds]:
            self.timers.remove(timer)
            if timer[1] in self.closed:
                continue
            self.start(timer[1], reruns=True)
        for late in [late for late in self.lates if late.step <= self.steps]:
            self.lates.remove(late)
            self.execute(late)

    def execute(self, late: Late) -> None:
        created = late.bucket.put(late.key, late.body)
        kind = late.key.split("/", maxsplit=1)[0]
        if self.trace is not None:
            outcome = "takes effect" if created else "finds an object"
            self.trace.append(f"{self.steps:6d} {self.seconds:9.2f}s {late.process.name:8s} late {late.key} {outcome}")
        if created:
            self.seen[f"late effect: {kind}"] += 1
            if late.process.ended:
                self.seen["late effect of a process that has ended"] += 1
            if any(other.rank == late.process.rank and other is not late.process for other in self.living):
                self.seen["late effect after a successor took the rank"] += 1
            if late.bucket is self.store:
                self.created(late.process, late.key, late.looks)
        else:
            self.seen["late effect finds an object"] += 1

    def end(self) -> None:
        """No activity outlives its world."""
        for process in list(self.living):
            process.kill()

    def fault(self, process: Process, kinds: tuple[str, ...]) -> str | None:
        """How the request that is made now fails; None if it does not."""
        if not self.setting.fault_rate:
            return None
        number = self.choices.fault(self.setting.fault_rate, len(kinds))
        if not 0 < number <= len(kinds):
            return None
        self.seen[f"fault: {kinds[number - 1]}"] += 1
        process.faults[process.path] += 1
        if self.trace is not None:
            self.trace[-1] += f"  [{kinds[number - 1]}]"
        return kinds[number - 1]

    def overtakes(self, process: Process, key: str) -> bool:
        """Whether a rank is rerun now, while the PUT of `process` is on its way. Once.

        The round's commit may name the rank's former process. The new one joins before it, and trains after it.
        """
        if self._is_overtaken or self.setting.overtaken is None:
            return False
        rank, round_ = self.setting.overtaken
        if process.rank == rank or key != rendezvous_keys.commit(round_):
            return False
        self._is_overtaken = True
        self.seen["a rank is rerun while its round is being committed"] += 1
        for former in [other for other in self.living if other.rank == rank]:
            self.kill(former)
        for other in self.living:
            # All of them: another one would commit the round.
            other.stall(OVERTAKEN_SECONDS)
        self.overtaking = self.start(rank, reruns=True)
        return True

    def has_overtaken(self) -> None:
        """The new process has joined: the others go on."""
        self.overtaking = None
        for other in self.living:
            other.stall(0)

    def expect_late(self, process: Process, key: str, body: bytes, bucket: Bucket) -> None:
        steps = LATE_STEPS[self.steps % len(LATE_STEPS)]
        self.lates.append(Late(self.steps + steps, process, key, body, process.looks, bucket))

    def work(self, rank: int, round_: int) -> Floats:
        """The pseudo-gradient of one inner phase: never the same twice."""
        self._works += 1
        gradient = _noise(self.setting.count, self._works)
        if self.setting.declines == (rank, round_) and not self._declined:
            self._declined, gradient[0] = True, np.nan
        if self.setting.outlier == (rank, round_) and not self._exploded:
            self._exploded, gradient = True, gradient * np.float32(1000)
            self.seen["a step is a thousand times as large"] += 1
        return gradient

    def spoils(self, key: str, body: bytes, bucket: str) -> bytes:
        """What is stored when `body` is created."""
        self.sound.setdefault(key, body)
        at = self.setting.poisoned_at
        keys = (key, f"{bucket}:{key}")
        if len(body) <= at or not any(is_like(name, pattern) for name in keys for pattern in self.setting.poisoned):
            return body
        self.seen[f"damaged in the bucket: {key.split('/', maxsplit=1)[0]}"] += 1
        return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]

    def created(self, process: Process, key: str, looks: ClaimLooks | None = None) -> None:
        """Called once an object is stored."""
        self._created[key] = self.steps
        if key.startswith("amendments/"):
            self.seen["an amendment is created"] += 1
            amendment = Commit.from_json(self.store.written[key], key)
            self.seen["a round is void"] += amendment.void
            self.seen["a round is gathered and amended"] += amendment.gathers
            self._judge_late(amendment)
            self._judge_members(amendment)
        if key.startswith(NOTICES):
            self._judge_notice(key)
        if key.startswith(rendezvous_keys.CONTRIBUTIONS) and len(self.sound[key]) == HEADER_BYTES:
            self._judge_parts(key)
        if key.startswith(rendezvous_keys.CONTRIBUTIONS) and self.setting.start is not None:
            self._judge_announcement(key)
        if key.startswith(rendezvous_keys.SNAPSHOTS):
            self._shards.setdefault(round_of(key), []).append(key)
        if key.startswith(rendezvous_keys.COMMITS):
            self._judge_commit(Commit.from_json(self.store.written[key], key), looks or process.looks)

    def _judge_late(self, amendment: Commit) -> None:
        """An amendment leaves out whole places that are late, and none that alone has a part in a round of several."""
        body = self.store.written[rendezvous_keys.commit(amendment.round, amendment.revision - 1)]
        before = Commit.from_json(body, "commit")
        late = {member.place for member in before.members if member.rank in set(amendment.absent) - set(before.absent)}
        if late:
            self.seen["a place is late"] += 1
        gone = {member.rank for member in before.members if member.place in late} - set(amendment.absent)
        if gone:
            self.breaks(f"round {amendment.round} keeps ranks {sorted(gone)} of places that are late: {sorted(late)}")

    def _judge_commit(self, commit: Commit, looks: ClaimLooks) -> None:
        round_ = commit.round
        self.seen["a round is gathered"] += commit.gathers
        if commit.absent:
            self.seen["a round is committed without an expected rank"] += 1
            self._judge_absent(commit)
        if round_ > 1 and not self.store.exists(rendezvous_keys.commit(round_ - 1)):
            self.breaks(f"round {round_} is committed before round {round_ - 1}")
        self.steps_at_commits.append(list(self.steps_of))
        self._judge_finishes(commit)
        self._judge_members(commit)
        for member in commit.members:
            if rendezvous_keys.contribution(round_, member.rank, member.epoch) not in self.store.written:
                self.breaks(f"round {round_} names rank {member.rank}, which has not contributed")
            successor = rendezvous_keys.claim(member.rank, member.epoch + 1)
            newer = self._created.get(successor)
            if newer is not None and newer < looks.of(successor):
                self.breaks(f"round {round_} counts a superseded process of rank {member.rank}")
        if self.setting.start is not None:
            self._judge_seats(commit, looks)

    def _judge_seats(self, commit: Commit, looks: ClaimLooks) -> None:
        """A round of an elastic run counts who was ready before its last look, or has waited for them; and only those.

        It waits for no seat that nobody has taken, and for nobody who has said that he leaves. It counts what a process
        gave before it said so.
        """
        round_ = commit.round
        self.seen["a member leaves with its contribution"] += any(member.leaves for member in commit.members)
        left = self.last_commit(round_ - 1) if round_ > 1 else None
        for rank in commit.absent:
            if left is not None and rank in left.named - left.expected and commit.epoch_of(rank) == left.epoch_of(rank):
                self.breaks(f"round {round_} has waited for rank {rank}, which had left")
            if not commit.epoch_of(rank) and not (round_ == 1 and rank < (self.setting.start or 0)):
                self.breaks(f"round {round_} has waited for rank {rank}, which has never come")
        if looks.listed <= self._created.get(rendezvous_keys.commit(round_ - 1), 0):
            self.breaks(f"round {round_} is committed without a look for new claims")
        for rank in set(range(len(commit.epochs))) - commit.named:
            if self._left_after(round_, rank, commit.epochs[rank] - 1):
                self.breaks(f"round {round_} does not count rank {rank}, which has contributed and left")
        finished = {finish.rank for finish in commit.finished}
        folder = rendezvous_keys.announced_after(round_ - 1)
        for key in [found for found in self.store.written if found.startswith(folder)]:
            rank, epoch = (int(part) for part in key.removeprefix(folder).split("-")[:2])
            if self._created[key] >= looks.listed:
                continue
            if commit.epoch_of(rank) < epoch:
                self.breaks(f"round {round_} does not know claim {epoch} of rank {rank}, which was announced")
            elif commit.epoch_of(rank) == epoch and not key.endswith("-loads") and rank not in finished:
                self.seen["a replica joins"] += left is not None and rank not in left.named
                if rank not in commit.named | set(commit.absent):
                    self.breaks(f"round {round_} has not waited for rank {rank}, which was ready")

    def _left_after(self, round_: int, rank: int, epoch: int) -> bool:
        """Whether a process has contributed to the round with this claim, and left with the next one."""
        if rendezvous_keys.contribution(round_, rank, epoch) not in self.store.written:
            return False
        own, after = (
            ClaimDocument.from_json(self.store.written[claim], claim)
            for claim in (rendezvous_keys.claim(rank, epoch), rendezvous_keys.claim(rank, epoch + 1))
        )
        return after.loads and (own.attempt, own.incarnation) == (after.attempt, after.incarnation)

    def _judge_notice(self, key: str) -> None:
        """A report names a rank on a cluster and a round that has begun, in the control plane's words."""
        self.seen["a missing rank of a cluster is reported"] += 1
        notice = Notice.parse(key)
        on_cluster = notice is not None and any(a <= notice.rank <= b for a, b in self.setting.clusters)
        if notice is None or not on_cluster or (notice.run, notice.kind) != (RUN, NoticeKind.MISSING):
            self.breaks(f"{key} is no report of a rank on a cluster")
        elif int(notice.mark) > 1 and not self.store.exists(rendezvous_keys.commit(int(notice.mark) - 1)):
            self.breaks(f"{key} reports a round that has not begun")

    def _judge_announcement(self, key: str) -> None:
        """Before a process contributes for the first time, those who make the round can find its claim."""
        _, rank, name = key.split("/")
        epoch, folder = name.partition("-")[2], rendezvous_keys.announced_after(round_of(key) - 1)
        earlier = (other for other in self.sound if other.startswith(f"{rendezvous_keys.CONTRIBUTIONS}{rank}/"))
        is_first = sum(other.endswith(f"-{epoch}") for other in earlier) == 1
        if is_first and f"{folder}{rank}-{epoch}" not in self.store.written:
            self.breaks(f"{key} is there, and its claim is not announced")

    def _judge_parts(self, key: str) -> None:
        """A contribution in parts is whole when others can see it."""
        header = decode_header(key, memoryview(self.sound[key]), ContributionHeader)
        parts = 0 if header.declined else header.member.objects or 0
        store = self.near.get(header.member.place, self.store)
        blocks = Blocks(header.count, codec_named(self.setting.codec), header.exact)
        missing = [
            part
            for part in range(parts)
            if blocks.shard(part, parts) and rendezvous_keys.contribution_part(key, part) not in store.written
        ]
        if missing:
            self.breaks(f"{key} is there without its parts {missing}")

    def note_orphans(self) -> None:
        """Count the parts of contributions that never became whole."""
        parts = {key[: -len("-0000")] for key in self.store.written if IS_PART.fullmatch(key)}
        self.seen["a contribution's parts stay without its own object"] += len(parts - self.store.written.keys())

    def _judge_members(self, commit: Commit) -> None:
        if not commit.void and len(commit.members) < needed_of(self.setting.min_participants, len(commit.finished)):
            self.breaks(f"round {commit.round} counts with {len(commit.members)} members")

    def _judge_absent(self, commit: Commit) -> None:
        """No round waits for a rank only because of claims whose processes still load the run's state."""
        if commit.round == 1:
            return
        previous = self.last_commit(commit.round - 1)
        for rank in set(commit.absent) - previous.expected:
            claims = (
                rendezvous_keys.claim(rank, epoch)
                for epoch in range(previous.epoch_of(rank) + 1, commit.epoch_of(rank) + 1)
            )
            if all(ClaimDocument.from_json(self.store.written[key], key).loads for key in claims):
                self.breaks(f"round {commit.round} has waited for rank {rank}, which loads")

    def flips(self, process: Process, state: GlobalState) -> None:
        """Damage the process's memory, if the schedule says so: once."""
        if self.setting.flips == (process.rank, state.round + 1) and not self.flipped:
            self.flipped.add(process)
            self.seen["a bit of a state is flipped"] += 1
            state.parameters.view(np.uint32)[0] ^= 1

    def joined(self, process: Process, round_: int) -> None:
        """A process has joined with the state after `round_`: no earlier one than the run had reached when it came."""
        if round_ < process.begun_after:
            self.breaks(f"{process.name} sets the run back from round {process.begun_after} to {round_}")

    def breaks(self, problem: str) -> None:
        self.problems.append(problem)
        if self.trace is not None:
            self.trace.append(f"{self.steps:6d} {self.seconds:9.2f}s BROKEN   {problem}")

    def _judge_finishes(self, commit: Commit) -> None:
        """A commit names those who have finished, and with `stop` the first one that names any is the last one."""
        for finish in commit.finished:
            self.seen["a round is committed without a rank that has finished"] += 1
            body = self.store.written[rendezvous_keys.claim(finish.rank, commit.epochs[finish.rank])]
            if ClaimDocument.from_json(body, "claim").finish != finish:
                self.breaks(f"round {commit.round} lists rank {finish.rank}, which has not finished")
        if self._ends_run and commit.round > self._ends_run:
            self.breaks(f"round {commit.round} is committed after the last one, {self._ends_run}")
        if commit.finished and self.setting.on_early_finish is OnEarlyFinish.STOP:
            self._ends_run = self._ends_run or commit.round

    def is_over(self, process: Process) -> bool:
        """Whether a process that has ended well holds the round that it should."""
        if self._ends_run and process.round == self._ends_run:
            return True
        return process.round >= self.setting.last_round(process.rank)

    def last_commit(self, round_: int) -> Commit:
        """The last amendment of a round's commit, or the commit itself."""
        revision = 0
        while self.store.exists(rendezvous_keys.commit(round_, revision + 1)):
            revision += 1
        key = rendezvous_keys.commit(round_, revision)
        return Commit.from_json(self.store.written[key], key)

    def given(self, key: str) -> Floats:
        """The values of a contribution as its processes have sent them."""
        header = decode_header(key, memoryview(self.sound[key]), ContributionHeader)
        blocks = Blocks(header.count, codec_named(header.codec.partition("/")[0]), header.exact)
        bodies = [self.sound[key]]
        if len(bodies[0]) == HEADER_BYTES:
            parts = (rendezvous_keys.contribution_part(key, part) for part in range(header.member.objects or 0))
            bodies = [self.sound[part] for part in parts if part in self.sound]
        body = b"".join(body[HEADER_BYTES:] for body in bodies)
        return decode_blocks(key, memoryview(body), blocks, range(blocks.number))

    def saw_members(self, commit: Commit, claim: Claim, gradient: Floats, first: int = 0) -> None:
        """A process has given `gradient` to a round under `claim`: what counts under it is this, not another's.

        `first`: the number of the first value.
        """
        key = rendezvous_keys.contribution(commit.round, claim.rank, claim.epoch)
        counted = any((member.rank, member.epoch) == (claim.rank, claim.epoch) for member in commit.members)
        if counted and not np.array_equal(self.given(key)[first : first + gradient.size], gradient):
            self.breaks(f"what a process of rank {claim.rank} gave to round {commit.round} counts for another's")

    def saw_mean(self, round_: int, mean: Floats, first: int = 0) -> None:
        """The mean that some replica has applied, or the values of it from number `first` on."""
        if not self.means[round_].agree(first, mean):
            self.breaks(f"two means of round {round_} were applied")

    def saw_state(self, state: GlobalState, first: int = 0) -> None:
        """The state of some replica after its round, or what one of its processes holds."""
        self.saw(state.round, state.parameters, first)
        self.saw(state.round, state.momentum, self.setting.count + first)
        if state.round == 0 and len(set(self.states[0].known[: state.parameters.size : 64])) > 1:
            # Each process begins with its own rank everywhere.
            self.breaks("the initial state is of several processes")

    def saw(self, round_: int, found: Floats, first: int = 0) -> None:
        """Values of the state of some replica after a round: parameters, then momentum."""
        if not self.states[round_].agree(first, found):
            self.breaks(f"two states after round {round_}")

    def saw_sweep(self, limit: int, places: range, before: Iterable[str]) -> None:
        """A member has deleted its share of what no replica needs: of what there was only statements are left."""
        for key in before:
            folder, _, rest = key.partition("/")
            last = limit - 1 if folder in STATES else limit
            if folder not in DATA or round_of(key) > last or self.store.is_statement(key):
                continue
            is_its = int(rest.partition("/")[0]) % places.step == places.start
            if is_its and self.store.exists(key) and key not in self.store.deleted:
                self.breaks(f"{key} is left by a sweep up to round {limit}")

    def deletes(self, key: str) -> None:
        """Called before `key` is deleted: a later state must cover it."""
        folder, round_ = key.split("/", maxsplit=1)[0], round_of(key)
        least = round_ + 1 if folder in STATES else round_
        if folder not in DATA or not any(self._is_whole(at) for at in range(least, self.setting.rounds + 1)):
            self.breaks(f"{key} is deleted although no state covers it")

    def _is_whole(self, round_: int) -> bool:
        """Whether there is a torchft state, or a snapshot with its manifest and every shard that was ever written."""
        if self.store.exists(rendezvous_keys.torchft_state(round_)):
            return True
        manifest = rendezvous_keys.manifest(round_)
        if not self.store.exists(manifest):
            return False
        return all(self.store.exists(key) for key in self._shards.get(round_, ()))


def _end_of(error: BaseException | None) -> str:
    """A process's end, as it is counted."""
    if error is None:
        return "well"
    message = str(error)
    for part, name in _ENDS.items():
        if part in message and not isinstance(error, DivergedError):
            return name
    return _KINDS.get(type(error), type(error).__name__)


_ENDS = {
    "participants; missing": "no quorum in time",
    "can no longer reach": "no quorum possible",
    "is damaged": "damaged",
    "has been damaged": "own contribution damaged",
    "its machine may be faulty": "other bits",
}
_KINDS = {
    Killed: "killed",
    FencedError: "fenced",
    StoppedError: "stopped",
    StoreUnavailableError: "S3 unavailable",
    DivergedError: "diverged",
}


def ended_well(processes: Iterable[Process], rank: int) -> bool:
    """Whether a process of `rank` has trained to the end."""
    return any(process.rank == rank and process.ended and process.error is None for process in processes)


_NOISE = np.random.default_rng(7).standard_normal(1 << 16).astype(np.float32)


def _noise(count: int, number: int) -> Floats:
    """Values that differ for every number; a slice of a fixed sequence, scaled, because generators are slow to make."""
    start = (number * 127) % (_NOISE.size - count)
    return _NOISE[start : start + count] * np.float32(1 + number / 1024)
