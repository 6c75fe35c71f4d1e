"""Which process takes the next step: at random, or in all orders close to a fair one; and the faults."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from muster.replica.rounds import snapshots
from muster.replica.wire import blocks, keys
from tests.exploration.judge import problems
from tests.exploration.world import Process, Setting, World

STEPS_MAX = 20_000  # many times what any schedule needs that ends

Choice = Callable[[World, Sequence[Process]], Process]


@dataclass(frozen=True)
class Event:
    """Once the processes of `rank` have taken `step` steps together, or ended: they are killed, another one starts, or
    both. A start without a kill makes a duplicate. The steps may be those of another rank (`counted`).
    """

    step: int
    rank: int
    kills: bool
    starts: bool
    attempt: int = 1
    counted: int | None = None


@contextmanager
def small_shards() -> Iterator[None]:
    """Models of a few blocks have as many shards as large ones, and nothing is logged."""
    before = blocks.BLOCK_ELEMENTS_MIN, blocks.SHARD_BYTES_MIN, snapshots.SHARD_BYTES_MAX
    blocks.BLOCK_ELEMENTS_MIN, blocks.SHARD_BYTES_MIN, snapshots.SHARD_BYTES_MAX = 1, 1, 1024
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        blocks.BLOCK_ELEMENTS_MIN, blocks.SHARD_BYTES_MIN, snapshots.SHARD_BYTES_MAX = before
        logging.disable(logging.NOTSET)


def explore(
    setting: Setting, choose: Choice, events: Sequence[Event] = (), loses_answer: Callable[[], bool] = lambda: False
) -> World:
    """Run one schedule to its end; returns its problems."""
    world = World(setting, loses_answer)
    try:
        for rank in range(setting.replicas):
            world.start(rank)
        finish(world, choose, events)
    finally:
        world.end()
    return world


def finish(world: World, choose: Choice, events: Sequence[Event] = ()) -> None:
    """Run until all processes have ended; returns the problems."""
    waiting = sorted(events, key=lambda event: event.step)
    for _ in range(STEPS_MAX):
        due = next((event for event in waiting if _is_due(world, event)), None)
        if due is not None:
            waiting.remove(due)
            _happen(world, due)
        elif world.living:
            choose(world, world.living).run()
        else:
            break
    world.problems[:] = problems(world)


def _is_due(world: World, event: Event) -> bool:
    counted = event.rank if event.counted is None else event.counted
    processes = [process for process in world.processes if process.rank == counted]
    return sum(process.steps for process in processes) >= event.step or all(process.ended for process in processes)


def _happen(world: World, event: Event) -> None:
    if event.kills:
        for process in world.living:
            if process.rank == event.rank:
                process.kill()
    if event.starts:
        world.start(event.rank, event.attempt)


def fair(world: World, living: Sequence[Process]) -> Process:
    """The ready process with the fewest steps; if all wait, the one that wakes first."""
    return min(living, key=lambda process: (process.wakes_at or 0.0, process.steps))


class Delayed:
    """The fair order, but at some steps the process that is due pauses for a while."""

    def __init__(self, delays: Sequence[int], pause: int) -> None:
        self._delays, self._pause = frozenset(delays), pause
        self.steps = 0
        self._back: dict[Process, int] = {}

    def __call__(self, world: World, living: Sequence[Process]) -> Process:
        self.steps += 1
        if self.steps in self._delays:
            self._back[fair(world, living)] = self.steps + self._pause
        ready = [process for process in living if self._back.get(process, 0) <= self.steps]
        return fair(world, ready or living)


class Randomly:
    """One of three ways, at random: single steps, long stretches of one process, or changing priorities."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._way = rng.randrange(3)
        self._stay = rng.choice([0.5, 0.8, 0.95])
        self._waking = rng.choice([0.02, 0.2, 0.5])
        self._last: Process | None = None
        self._priorities: dict[Process, float] = {}

    def __call__(self, world: World, living: Sequence[Process]) -> Process:
        ready = [process for process in living if process.wakes_at is None]
        if not ready or self._rng.random() < self._waking:
            # A waiting process may wake while others sleep: machines differ in speed without bound.
            ready = list(living)
        self._last = self._pick(ready)
        return self._last

    def _pick(self, ready: list[Process]) -> Process:
        if self._way == 0:
            return self._rng.choice(ready)
        if self._way == 1:
            stays = self._last in ready and self._rng.random() < self._stay
            return self._last if stays and self._last is not None else self._rng.choice(ready)
        if self._rng.random() < 0.05:
            self._priorities.pop(self._rng.choice(ready), None)
        return max(ready, key=lambda process: self._priorities.setdefault(process, self._rng.random()))


def explore_randomly(seed: int) -> World:
    """One schedule: the run, the order and what goes wrong in it are drawn from the seed."""
    rng = random.Random(seed)  # noqa: S311 - has to be repeatable, guards nothing
    replicas = rng.choice([3, 3, 4])
    setting = Setting(
        replicas=replicas,
        min_participants=rng.randrange(1, replicas),
        rounds=rng.randrange(2, 6),
        snapshot_rounds=rng.choice([1, 1, 2, 3]),
        grace_seconds=rng.choice([0.0, 0.5, 2.0]),
    )
    if setting.min_participants > 1 and rng.random() < 0.2:
        damaged = keys.contribution(rng.randrange(1, setting.rounds + 1), rng.randrange(replicas), 1)
        setting = replace(setting, poisoned=damaged)
    lost = rng.choice([0.0, 0.0, 0.1])
    return explore(setting, Randomly(rng), _faults(rng, setting), lambda: rng.random() < lost)


def _faults(rng: random.Random, setting: Setting) -> list[Event]:
    """Up to three; so many ranks stay alive, or are replaced, that a quorum lives."""
    events: list[Event] = []
    attempts = dict.fromkeys(range(setting.replicas), 1)
    dead: set[int] = set()
    for step in sorted(rng.randrange(0, 120) for _ in range(rng.choice([0, 1, 1, 2, 3]))):
        rank = rng.randrange(setting.replicas)
        kind = rng.choice(["rerun", "restart", "duplicate", "death"])
        if rank in dead or (kind == "death" and setting.replicas - len(dead) - 1 < setting.min_participants):
            continue
        if kind == "death":
            dead.add(rank)
        elif kind != "restart":
            attempts[rank] += 1
        events.append(Event(step, rank, kind != "duplicate", kind != "death", attempts[rank]))
    return events
