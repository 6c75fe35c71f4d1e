"""Replicas as threads of which one runs at a time, from one call of the store to the next, as a schedule says.

Time is virtual: it passes only when a process that waits is chosen, and then just as far as that one waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.metrics import Metrics
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.transport import ObjectExistsError, Part, Store
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats
from tests.exploration.memory_store import MemoryStore
from tests.support.rendezvous_keys import is_like, of_round, round_of

RUN = "explored"
FOR_EVER = 1e9  # seconds: no schedule is that long, so a process that times out waited in vain


def _closed() -> threading.Lock:
    """A gate that lets one thread pass per release; a lock is several times as fast as a semaphore."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Setting:
    """The run that is explored."""

    replicas: int = 3
    min_participants: int = 2
    rounds: int = 4
    snapshot_rounds: int = 2
    grace_seconds: float = 2.0
    count: int = 1024  # four blocks: a shard for each of up to four members
    poisoned: str | None = None  # what is created below this key is damaged
    skew_seconds: float = 0.0  # how much the clock of rank 0's machine is ahead of the others'


class Serial(Executor):
    """Requests one after the other: an order of them is part of the schedule."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Process:
    """One process of one replica, with its own store, clock and pool."""

    def __init__(self, world: World, rank: int, attempt: int) -> None:
        self.world, self.rank, self.attempt = world, rank, attempt
        self.wakes_at: float | None = None
        self.label = "start"
        self.steps = 0
        self.ended = False
        self.error: BaseException | None = None
        self.round = 0
        self.left_out = 0
        self._killed = False
        self._turn = _closed()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    # What its store and its clock call, in its own thread.

    def at(self, label: str, wakes_at: float | None = None) -> None:
        """Hand the baton back, and continue when it returns."""
        self.label, self.wakes_at = label, wakes_at
        self.world.baton.release()
        self._turn.acquire()
        if self._killed:
            raise Killed
        self.steps += 1

    def monotonic(self) -> float:
        return self.world.seconds + (0.0 if self.rank else self.world.setting.skew_seconds)

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.at("wait", self.world.seconds + seconds)
        return False

    # What the world calls.

    def run(self) -> None:
        """Let it run up to its next call."""
        if self.wakes_at is not None:
            self.world.seconds = max(self.world.seconds, self.wakes_at)
        self.wakes_at = None
        self._turn.release()
        self.world.baton.acquire()

    def kill(self) -> None:
        """End it before its next call."""
        self._killed, self.wakes_at = True, None
        self.run()

    def _live(self) -> None:
        try:
            self._turn.acquire()
            if self._killed:
                raise Killed
            self._train()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.world.baton.release()

    def _train(self) -> None:
        setting = self.world.setting
        quorum = Quorum(setting.replicas, setting.min_participants, setting.grace_seconds)
        context = RoundContext(SteppedStore(self), RUN, quorum, FOR_EVER, self._stop, Serial(), self)
        context = replace(context, snapshot_rounds=setting.snapshot_rounds)
        rendezvous = Rendezvous.open(context, self.rank, self.attempt, Metrics())
        start = np.full(setting.count, self.rank, np.float32)
        state = ReplicatedState.join(rendezvous, ArrayPacking(start), Witnessed(self))
        while (done := state.state.round) < setting.rounds:
            self.round = done
            gradient = self.world.work(self.rank, done + 1)
            exchange = state.advance(LocalUpdate(gradient, float(self.rank + 1)))
            if exchange is None or not exchange.took_part:
                self.left_out += 1
        self.round = state.state.round
        self.world.saw_state(state.state)


class Witnessed(Algorithm):
    """DiLoCo that reports every applied mean to the world."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        object.__setattr__(self, "_process", process)

    @property
    def outer(self) -> Outer:
        return WitnessedOuter(self._process)  # type: ignore[attr-defined]


class WitnessedOuter(Outer):
    """The outer optimizer of one process."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        object.__setattr__(self, "_process", process)

    def apply(self, state: GlobalState, mean: Floats, optimized: int | None = None) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        world.saw_state(state)
        super().apply(state, mean, optimized)
        world.saw_mean(state.round, mean)
        world.saw_state(state)


class SteppedStore(Store):
    """The world's store as one process reaches it: every call is a step."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inner = process.world.store

    def create(self, key: str, body: bytes | bytearray) -> None:
        self._process.at(f"create {key}")
        self._inner.create(key, self._process.world.spoils(key, bytes(body)))
        if self._process.world.loses_answer():
            # The client tries again and finds what it wrote itself.
            raise ObjectExistsError(key)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Part:
        self._process.at(f"read {key}")
        return self._inner.read(key, start, stop)

    def exists(self, key: str) -> bool:
        self._process.at(f"exists {key}")
        return self._inner.exists(key)

    def keys(self, folder: str, stop: str) -> list[str]:
        self._process.at(f"keys {folder}")
        return self._inner.keys(folder, stop)

    def delete(self, keys: Sequence[str]) -> None:
        # Not atomic: the process may die in between.
        for key in keys:
            self._process.at(f"delete {key}")
            self._process.world.deletes(key)
            self._inner.delete([key])

    def uri(self, key: str) -> str:
        return self._inner.uri(key)


class World:
    """The bucket, the time, the processes, and what was observed."""

    def __init__(self, setting: Setting, loses_answer: Callable[[], bool] = lambda: False) -> None:
        self.setting = setting
        self.seconds = 0.0
        self.store = MemoryStore(lambda: self.seconds)
        self.baton = _closed()
        self.loses_answer = loses_answer
        self.processes: list[Process] = []
        self.means: dict[int, bytes] = {}
        self.states: dict[int, bytes] = {}
        self.problems: list[str] = []
        self.sound: dict[str, bytes] = {}
        self._works = 0

    def start(self, rank: int, attempt: int = 1) -> Process:
        """A new process of `rank`, beside existing ones."""
        process = Process(self, rank, attempt)
        self.processes.append(process)
        return process

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.ended]

    def end(self) -> None:
        """No thread outlives its world."""
        for process in self.living:
            process.kill()

    def work(self, rank: int, round_: int) -> Floats:
        """The pseudo-gradient of one inner phase: never the same twice."""
        self._works += 1
        return np.random.default_rng((rank, round_, self._works)).standard_normal(self.setting.count).astype(np.float32)

    def spoils(self, key: str, body: bytes) -> bytes:
        """What is stored when `body` is created."""
        self.sound[key] = body
        if self.setting.poisoned is None or not is_like(key, self.setting.poisoned):
            return body
        return body[:5000] + bytes([body[5000] ^ 1]) + body[5001:]

    def saw_mean(self, round_: int, mean: Floats) -> None:
        if self.means.setdefault(round_, mean.tobytes()) != mean.tobytes():
            self.problems.append(f"two means of round {round_} were applied")

    def saw_state(self, state: GlobalState) -> None:
        found = state.parameters.tobytes() + state.momentum.tobytes()
        if self.states.setdefault(state.round, found) != found:
            self.problems.append(f"two states after round {state.round}")

    def deletes(self, key: str) -> None:
        """Called before `key` is deleted: a later state must cover it."""
        folder, round_ = key.split("/", maxsplit=1)[0], round_of(key)
        least = round_ + 1 if folder == "snapshots" else round_
        if folder not in {"contributions", "reduced", "snapshots"} or not any(
            self._is_whole(at) for at in range(least, self.setting.rounds + 1)
        ):
            self.problems.append(f"{key} is deleted although no snapshot covers it")

    def _is_whole(self, round_: int) -> bool:
        """Whether a snapshot has its manifest and every shard that was ever written of it."""
        manifest = f"manifests/{round_:08d}.json"
        shards = [key for key in self.store.written if is_like(key, of_round(keys.SNAPSHOTS, round_))]
        return self.store.exists(manifest) and all(self.store.exists(key) for key in shards)
