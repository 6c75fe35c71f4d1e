"""Which process takes the next step: at random, in all orders close to a fair one, or as recorded; and the faults."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.exploration.judge import problems
from tests.exploration.simulated import scaled
from tests.exploration.trainers import train_arrays, train_diloco
from tests.exploration.world import Choices, Process, Setting, Trainer, World
from tests.support.rendezvous_keys import is_like

STEPS_MAX = 30_000  # many times what any schedule needs that ends

Choice = Callable[[World, Sequence[Process]], Process]


@dataclass(frozen=True)
class Event:
    """Once the processes of `rank` have taken `step` steps together, or ended, something happens to them.

    They are killed, another one starts, or both; a start without a kill makes a duplicate. The new process belongs to
    the next attempt (`reruns`), or is a restart in the same one, and starts `after_seconds`. Or they are told to stop
    (SIGTERM), perhaps because their seat is closed, stall, cannot reach S3 for some seconds, or one process of the
    replica dies alone (`loses`). The steps may be those of another rank (`counted`), and may count from the commit of a
    round on (`committed`). A place may be parted from the run's bucket for some `seconds` (`parts`).
    """

    step: int
    rank: int
    kills: bool = False
    starts: bool = False
    reruns: bool = False
    after_seconds: float = 0.0
    counted: int | None = None
    stops: bool = False
    closes: bool = False
    stalls: float = 0.0
    cuts_off: float = 0.0
    committed: int = 0
    loses: int | None = None
    parts: str = ""
    seconds: float = 0.0


_TRAINERS: dict[str, Trainer] = {
    "arrays": train_arrays,
    "groups": train_arrays,
    "diloco": train_diloco,
    "elastic": train_arrays,
    "elastic-diloco": train_diloco,
}


def world_of(setting: Setting, choices: Choices | None = None) -> World:
    """A world whose processes run the setting's front end."""
    return World(setting, _trainer(setting.front_end), choices)


def _trainer(front_end: str) -> Trainer:
    if front_end in _TRAINERS:
        return _TRAINERS[front_end]
    # Imports PyTorch.
    from tests.exploration.torchft_trainer import train_torchft  # noqa: PLC0415

    return train_torchft


def explore(
    setting: Setting,
    choose: Choice,
    events: Sequence[Event] = (),
    choices: Choices | None = None,
    trace: list[str] | None = None,
) -> World:
    """Run one schedule to its end; the world has its problems."""
    world = world_of(setting, choices)
    world.trace = trace
    try:
        for rank in range(setting.replicas if setting.start is None else setting.start):
            world.start(rank)
        finish(world, choose, events)
    finally:
        world.end()
    return world


def finish(world: World, choose: Choice, events: Sequence[Event] = ()) -> None:
    """Run until all processes have ended, and judge."""
    waiting = sorted(events, key=lambda event: event.step)
    with scaled(world.setting):
        for _ in range(STEPS_MAX):
            if world.problems:
                # What follows from a broken invariant says nothing more.
                break
            if world.timers or world.lates:
                world.happen()
            if waiting and (due := next((event for event in waiting if _is_due(world, event)), None)) is not None:
                waiting.remove(due)
                _happen(world, due)
                continue
            able = _able(world)
            if able:
                world.take_step(choose(world, able))
            elif world.timers:
                world.seconds = max(world.seconds, min(timer[0] for timer in world.timers))
            else:
                break
    for late in world.lates:
        world.execute(late)
    if max(world.setting.sizes) > 1:
        world.note_orphans()
    world.problems[:] = problems(world)


def _able(world: World) -> list[Process]:
    able = [process for process in world.living if not process.is_stuck]
    if world.has_stalled:
        return [process for process in able if process.stalls_until <= world.seconds] or able
    return able


def _is_due(world: World, event: Event) -> bool:
    counted = event.rank if event.counted is None else event.counted
    if event.committed > len(world.steps_at_commits):
        return False
    before = world.steps_at_commits[event.committed - 1][counted] if event.committed else 0
    return world.steps_of[counted] >= before + event.step or all(process.rank != counted for process in world.living)


def _happen(world: World, event: Event) -> None:
    if event.closes:
        world.close(event.rank)
    if event.parts:
        world.part(event.parts, event.seconds)
    for process in [process for process in world.living if process.rank == event.rank]:
        if event.kills:
            world.kill(process)
        if event.loses is not None:
            world.lose(process, event.loses)
        if event.stops:
            process.sigterm()
            world.seen["told to stop"] += 1
        if event.stalls:
            process.stall(event.stalls)
            world.seen["stalled"] += 1
        if event.cuts_off:
            process.cut_off_until = world.seconds + event.cuts_off
            world.seen["cut off from S3"] += 1
    if event.starts and event.after_seconds:
        world.timers.append((world.seconds + event.after_seconds, event.rank))
    elif event.starts:
        world.start(event.rank, reruns=event.reruns)


def fair(world: World, living: Sequence[Process]) -> Process:
    """The ready process with the fewest steps; if all wait, the one that wakes first."""
    return min(living, key=lambda process: (process.wakes_at or 0.0, process.steps))


@contextmanager
def played(setting: Setting, choices: Choices | None = None) -> Iterator[World]:
    """A world in which a test decides who takes the next step; at the end it goes on fairly, and nothing is broken."""
    world = world_of(setting, choices)
    try:
        yield world
        finish(world, fair)
        assert world.problems == []
    finally:
        world.end()


def go_on(world: World, until: Callable[[], bool], holding: tuple[Process, ...] = ()) -> None:
    """Let all but those held take steps, fairly, until something is the case."""
    for _ in range(5_000):
        if until():
            return
        living = [process for process in world.living if process not in holding]
        assert living, "no process is left that could make it true"
        world.take_step(fair(world, living))
    message = "it never came"
    raise AssertionError(message)


def bring_before(world: World, process: Process, call: str) -> None:
    """Stop `process` just before it makes `call`; the others go on meanwhile."""
    go_on(world, lambda: is_like(process.label, call))


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
        world.choices.orders.append(self._last.number)
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


class Recorded:
    """The order of a record; fair where it is silent, or names a process that cannot go on."""

    def __init__(self, orders: Sequence[int]) -> None:
        self._orders = iter(orders)

    def __call__(self, world: World, living: Sequence[Process]) -> Process:
        number = next(self._orders, 0)
        if 0 < number <= len(world.processes) and world.processes[number - 1] in living:
            return world.processes[number - 1]
        return fair(world, living)
