"""Who takes the next step: at random, or one of all ways with few deviations from a fair order. And what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.exploration.judge import problems
from tests.exploration.world import Process, Setting, World

STEPS_MAX = 20_000  # many times what any schedule needs that ends

Choice = Callable[[World, Sequence[Process]], Process]


@dataclass(frozen=True)
class Event:
    """At the `step`-th step of the world: a process of `rank` is killed, started, or (a duplicate) started beside it."""

    step: int
    rank: int
    kills: bool
    starts: bool
    attempt: int = 1


def run(
    setting: Setting, choose: Choice, events: Sequence[Event] = (), loses_answer: Callable[[], bool] = lambda: False
) -> World:
    """One schedule to its end. Who is behind is judged by the caller."""
    world = World(setting, loses_answer)
    try:
        for rank in range(setting.replicas):
            world.start(rank)
        due = sorted(events, key=lambda event: event.step)
        for step in range(STEPS_MAX):
            while due and (due[0].step <= step or not world.living):
                _happen(world, due.pop(0))
            living = world.living
            if not living:
                break
            choose(world, living).run()
        world.problems[:] = problems(world)
    finally:
        world.end()
    return world


def _happen(world: World, event: Event) -> None:
    if event.kills:
        for process in world.living:
            if process.rank == event.rank:
                process.kill()
    if event.starts:
        world.start(event.rank, event.attempt)


def fair(world: World, living: Sequence[Process]) -> Process:
    """Whoever is ready and has taken the fewest steps; if all wait, who wakes first."""
    return min(living, key=lambda process: (process.wakes_at or 0.0, process.steps))


class Deviating:
    """A fair order in which, at each of some steps, the one whose turn it is has to stand back for a while."""

    def __init__(self, delays: Sequence[int], pause: int) -> None:
        self._delays, self._pause = frozenset(delays), pause
        self._step = 0
        self._back: dict[Process, int] = {}

    def __call__(self, world: World, living: Sequence[Process]) -> Process:
        self._step += 1
        chosen = fair(world, living)
        if self._step in self._delays:
            self._back[chosen] = self._step + self._pause
        ready = [process for process in living if self._back.get(process, 0) <= self._step]
        return fair(world, ready or living)


class Randomly:
    """One of three ways, by the seed: each step by lot, long stretches of one process, or priorities that change."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._way = rng.randrange(3)
        self._stay = rng.choice([0.5, 0.8, 0.95])
        self._patience = rng.choice([0.02, 0.2, 0.5])
        self._last: Process | None = None
        self._priorities: dict[Process, float] = {}

    def __call__(self, world: World, living: Sequence[Process]) -> Process:
        ready = [process for process in living if process.wakes_at is None]
        if not ready or self._rng.random() < self._patience:
            # Whoever waits may wake while others sleep: machines differ in speed without bound.
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


def random_schedule(seed: int) -> tuple[Setting, Choice, list[Event], Callable[[], bool]]:
    """A run, an order, and what goes wrong in it, all from one number."""
    rng = random.Random(seed)
    replicas = rng.choice([3, 3, 4])
    setting = Setting(
        replicas=replicas,
        min_participants=rng.randrange(1, replicas),
        rounds=rng.randrange(2, 6),
        snapshot_rounds=rng.choice([1, 1, 2, 3]),
        grace_seconds=rng.choice([0.0, 0.5, 2.0]),
    )
    events, attempts = [], dict.fromkeys(range(replicas), 1)
    dead: set[int] = set()
    for step in sorted(rng.randrange(1, 250) for _ in range(rng.choice([0, 1, 1, 2, 3]))):
        rank = rng.randrange(replicas)
        kind = rng.choice(["rerun", "restart", "duplicate", "death"])
        if rank in dead:
            continue
        if kind == "death":
            if replicas - len(dead) - 1 < setting.min_participants:
                continue
            dead.add(rank)
            events.append(Event(step, rank, kills=True, starts=False))
            continue
        attempts[rank] += kind != "restart"
        events.append(Event(step, rank, kills=kind != "duplicate", starts=True, attempt=attempts[rank]))
    lost = rng.choice([0.0, 0.0, 0.1])
    return setting, Randomly(rng), events, lambda: rng.random() < lost
