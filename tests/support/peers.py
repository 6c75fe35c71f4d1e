"""Replicas as threads over a local directory, each with a store that can be made to fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from muster.contract.run.commit import Commit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.parts.cut import Cut
from muster.replica.rendezvous import NOTHING_ELSE, Outside, Rendezvous
from muster.replica.replica_errors import RunEndedError
from muster.replica.rounds import agreement, quorum, reduction
from muster.replica.rounds.exchange import RoundOutcome
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.round_context import RoundContext, Stops
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, ObjectRange, ObjectWriter, Store
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats
from tests.support.rendezvous_keys import is_like
from tests.support.waiting import wait_until

RUN = "test"
SMALL = 300
# Enough for several shards: a shard has at least 256 KiB.
SHARDED = 200_000

# A time-out that never passes, however slow the machine is.
PATIENT_SECONDS = 120.0
_BRIEF_SECONDS = 0.2

Hook = Callable[[str], None]
Rewrite = Callable[[str, bytes], bytes]


class Killed(BaseException):
    """The simulated process is dead: it does nothing after this."""


class Returned(Exception):  # noqa: N818 - it is no error
    """The trainer returns here."""


def returns_before(round_: int) -> Callable[[int], None]:
    """For `Run.start`: a trainer that returns before it trains for `round_`."""

    def before_step(next_: int) -> None:
        if next_ >= round_:
            raise Returned

    return before_step


@dataclass
class HandClock:
    """A clock that a test sets. If it `passes`, it goes on while the process waits, and only then."""

    seconds: float = 0.0
    passes: bool = False

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        if not self.passes:
            return stop.wait(seconds)
        self.seconds += seconds
        return stop.wait(min(seconds, 0.005))


@dataclass
class Faults:
    """The failures of one replica's store."""

    before_create: Hook = lambda _: None
    after_create: Hook = lambda _: None
    before_read: Hook = lambda _: None
    rewrite: Rewrite = lambda _, body: body


class FaultyStore(Store):
    """A store whose calls pass through hooks."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def create(self, key: str, body: Bytes) -> None:
        self._faults.before_create(key)
        self._inner.create(key, self._faults.rewrite(key, bytes(body)))
        self._faults.after_create(key)

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        self._faults.before_create(key)
        return FaultyWriter(self._inner.writer(key, size), partial(self._faults.after_create, key))

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        self._faults.before_read(key)
        return self._inner.read(key, start, stop)

    def exists(self, key: str) -> bool:
        return self._inner.exists(key)

    def keys(self, folder: str, stop: str, over: int = -1) -> list[str]:
        return self._inner.keys(folder, stop, over)

    def delete(self, keys: Sequence[str]) -> None:
        self._inner.delete(keys)

    def uri(self, key: str) -> str:
        return self._inner.uri(key)


class FaultyWriter(ObjectWriter):
    """A writer whose end passes through a hook."""

    def __init__(self, inner: ObjectWriter, after_close: Callable[[], None]) -> None:
        self._inner, self._after_close = inner, after_close

    def write(self, body: Bytes) -> None:
        self._inner.write(body)

    def close(self) -> None:
        self._inner.close()
        self._after_close()

    def discard(self) -> None:
        self._inner.discard()


def kill_at(pattern: str) -> Hook:
    """A hook that ends the process at the first key that matches `pattern`."""

    def hook(key: str) -> None:
        if is_like(key, pattern):
            raise Killed(key)

    return hook


def missing_only_in(monkeypatch: pytest.MonkeyPatch, round_: int) -> None:
    """Let a quorum wait briefly for the others in `round_`, and in every other round as long as it takes.

    Otherwise a slow replica could be left out of any round: the learnt window may be two seconds.
    """

    def window(_quorum: Quorum, recent: Sequence[Commit]) -> float:
        at_hand = recent[-1].round + 1 if recent else 1
        return _BRIEF_SECONDS if at_hand == round_ else PATIENT_SECONDS

    monkeypatch.setattr(agreement, "grace_window", window)
    monkeypatch.setattr(quorum, "worth_waiting", lambda *_: inf)


def dead_are_replaced_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let members take over the shards of slow ones at once. Whose shards they are changes no byte."""
    monkeypatch.setattr(reduction.Reduction, "_floor", 0.05)


def none_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent members from taking over the shards of slow ones."""
    monkeypatch.setattr(reduction.Reduction, "_floor", PATIENT_SECONDS)


def run_all(threads: Sequence[threading.Thread]) -> None:
    """Start all and wait until each has ended."""
    for thread in threads:
        thread.start()
    for thread in threads:
        _join(thread)


def _join(thread: threading.Thread) -> None:
    thread.join(timeout=2 * PATIENT_SECONDS)
    assert not thread.is_alive(), "the replica hangs"


def gradient_of(rank: int, round_: int, count: int) -> Floats:
    """What a test's trainer moves its parameters by: the same for every process of a rank."""
    return np.random.default_rng((rank, round_)).standard_normal(count).astype(np.float32)


@dataclass
class Peer:
    """One process of one replica."""

    thread: threading.Thread
    stop: threading.Event
    outcomes: list[RoundOutcome] = field(default_factory=list)
    state: GlobalState | None = None
    rendezvous: Rendezvous | None = None
    error: BaseException | None = None

    def join(self) -> Peer:
        _join(self.thread)
        return self

    def parameters(self) -> bytes:
        """Its final parameters, after it ended without an error."""
        self.join()
        assert self.error is None, self.error
        assert self.state is not None
        return self.state.parameters.tobytes()


@dataclass
class Run:
    """A run in a directory."""

    root: Path
    replicas: int = 3
    min_participants: int = 3
    timeout_seconds: float = PATIENT_SECONDS
    rounds: int = 4
    count: int = SMALL
    snapshot_rounds: int = 10
    codec: str = "fp32"
    on_early_finish: OnEarlyFinish | None = None
    share: float | None = None  # see `Quorum`
    start_with: int | None = None
    name: str = RUN  # of the run in its lineage; everything is stored under RUN

    @classmethod
    def alone(cls, root: Path, **fields: Any) -> Self:
        """A run of one replica."""
        return cls(root, replicas=1, min_participants=1, **fields)

    @property
    def store(self) -> Store:
        return LocalStore(self.root)

    def context(self, store: Store | None = None, stops: Stops | None = None) -> RoundContext:
        quorum = Quorum(self.replicas, self.min_participants, PATIENT_SECONDS, self.share, self.start_with)
        context = RoundContext(store or self.store, RUN, quorum, self.timeout_seconds, stops or Stops())
        return replace(
            context, snapshot_rounds=self.snapshot_rounds, trained_by=self.name, on_early_finish=self.on_early_finish
        )

    def open(self, rank: int = 0, attempt: int = 1, outside: Outside = NOTHING_ELSE, **fields: Any) -> Rendezvous:
        """The rendezvous of one process of a replica, whose context has these fields besides."""
        return Rendezvous.open(replace(self.context(), **fields), rank, attempt, Metrics(), outside)

    def start(
        self,
        rank: int,
        attempt: int = 1,
        faults: Faults | None = None,
        before_step: Callable[[int], None] = lambda _: None,
        gradient: Callable[[int, int, int], Floats] = gradient_of,
    ) -> Peer:
        """A replica that trains to the last round, or to an earlier end of the run, and finishes.

        `before_step` is called with each round before it trains for it; with `Returned` it lets the trainer return.
        """
        stop = threading.Event()
        store = FaultyStore(self.store, faults or Faults())

        def work() -> None:
            try:
                metrics = Metrics()
                metrics.log(loss=0.5)
                peer.rendezvous = Rendezvous.open(self.context(store, Stops(stop)), rank, attempt, metrics)
                parameters = np.zeros(self.count, np.float32)
                outer = DiLoCo(peer.rendezvous, parameters, Algorithm(codec=self.codec))
                with suppress(Returned, RunEndedError):
                    while outer.round < self.rounds:
                        before_step(outer.round + 1)
                        parameters -= gradient(rank, outer.round + 1, self.count)
                        outcome = outer.step(rank + 1)
                        assert outcome is not None
                        peer.outcomes.append(outcome)
                peer.rendezvous.departure.finish("its trainer returned")
                assert peer.rendezvous.departure.training is not None
                peer.state = peer.rendezvous.departure.training.state
                assert parameters.tobytes() == peer.state.parameters.tobytes()
            except BaseException as error:
                peer.error = error

        peer = Peer(threading.Thread(target=work, name=f"r{rank}a{attempt}", daemon=True), stop)
        peer.thread.start()
        return peer

    def start_behind(self, victim: Peer, pattern: str, *ranks: int) -> list[Peer]:
        """Replicas that reach keys like `pattern` only after `victim` has died."""

        def hold(key: str) -> None:
            if is_like(key, pattern):
                wait_until("the victim's death", lambda: victim.error is not None)

        return [self.start(rank, faults=Faults(before_create=hold)) for rank in ranks]

    def start_all(self) -> list[Peer]:
        return [self.start(rank) for rank in range(self.replicas)]

    def commit(self, round_: int, revision: int = 0) -> Commit:
        path = self.root / rendezvous_keys.commit(round_, revision)
        return Commit.from_json(path.read_bytes(), str(path))

    def replayed_by_hand(self, members: Callable[[int], list[int]] | None = None) -> bytes:
        """The final parameters, computed in plain NumPy from the expected contribution of each rank."""
        state = GlobalState(0, np.zeros(self.count, np.float32), np.zeros(self.count, np.float32))
        for round_ in range(1, self.rounds + 1):
            ranks = list(range(self.replicas)) if members is None else members(round_)
            average = sum(rank + 1 for rank in ranks) / len(ranks)
            given = []
            for rank in ranks:
                # A contribution is a difference of float32 parameters, so it is rounded in the same way here.
                local = state.parameters - gradient_of(rank, round_, self.count)
                given.append((state.parameters - local) * np.float32((rank + 1) / average))
            first, *others = given
            Nesterov().apply(state, sum(others, first) * np.float32(1 / len(ranks)), Cut(self.count))
        return state.parameters.tobytes()


def together(run: Run, work: Callable[[Rendezvous], Any], attempt: int = 1) -> list[Any]:
    """Run `work` in all replicas at once; returns their results."""
    results: list[Any] = [None] * run.replicas
    errors: list[BaseException] = []

    def replica(rank: int) -> None:
        try:
            results[rank] = work(run.open(rank, attempt))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=replica, args=(rank,), daemon=True) for rank in range(run.replicas)]
    run_all(threads)
    assert not errors, errors
    return results


@contextmanager
def all_ended(peers: list[Peer]) -> Iterator[None]:
    """No thread outlives the test, even if it fails."""
    try:
        yield
    finally:
        for peer in peers:
            peer.stop.set()
            peer.thread.join(timeout=2 * PATIENT_SECONDS)
