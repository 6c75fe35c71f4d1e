"""From a schedule that broke an invariant to a small one that breaks it in the same way, and its trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.exploration.draws import Plan, run_seed
from tests.exploration.schedules import Recorded, explore
from tests.exploration.world import Choices, World

TRIES_MAX = 300


@dataclass(frozen=True)
class Schedule:
    """A schedule as its choices: 0 is the fair order, no fault, the oldest activity."""

    plan: Plan
    orders: tuple[int, ...]
    faults: tuple[int, ...]
    activities: tuple[int, ...]

    def run(self, trace: list[str] | None = None) -> World:
        choices = Choices(None, [], list(self.faults), list(self.activities))
        return explore(self.plan.setting, Recorded(self.orders), self.plan.events, choices, trace)


def kind_of(problem: str) -> str:
    """A problem without its numbers, so that it is recognised in another schedule."""
    return re.sub(r"\d+", "", problem)[:60]


def shrunk(seed: int, front_end: str, tries: int = TRIES_MAX) -> tuple[Schedule, list[str]]:
    """The smallest schedule found in so many tries that has the first problem of the seed's, and its trace by lines."""
    plan, world = run_seed(seed, front_end)
    kind = kind_of(world.problems[0])
    record = world.choices
    whole = Schedule(plan, tuple(record.orders), tuple(record.faults), tuple(record.activities))
    smallest = _Shrinking(kind, tries).shrink(whole)
    trace: list[str] = []
    problems = smallest.run(trace).problems
    return smallest, [*_without_repetitions(trace), *problems]


class _Shrinking:
    def __init__(self, kind: str, tries: int) -> None:
        self._kind = kind
        self._left = tries

    def shrink(self, schedule: Schedule) -> Schedule:
        schedule = self._events(schedule)
        schedule = self._settings(schedule)
        for name in ("faults", "activities", "orders"):
            schedule = self._zeros(schedule, name)
        return self._events(schedule)

    def _breaks(self, schedule: Schedule) -> bool:
        if not self._left:
            return False
        self._left -= 1
        return any(kind_of(problem) == self._kind for problem in schedule.run().problems)

    def _first(self, schedule: Schedule, simpler: list[Callable[[Plan], Plan]]) -> Schedule:
        for simplify in simpler:
            candidate = replace(schedule, plan=simplify(schedule.plan))
            if candidate != schedule and self._breaks(candidate):
                schedule = candidate
        return schedule

    def _events(self, schedule: Schedule) -> Schedule:
        events = schedule.plan.events

        def without(event: object) -> Callable[[Plan], Plan]:
            return lambda plan: replace(plan, events=tuple(item for item in plan.events if item is not event))

        return self._first(schedule, [without(event) for event in events])

    def _settings(self, schedule: Schedule) -> Schedule:
        def with_setting(**changes: object) -> Callable[[Plan], Plan]:
            return lambda plan: replace(plan, setting=replace(plan.setting, **changes))  # type: ignore[arg-type]

        simpler = [
            with_setting(fault_rate=0.0),
            with_setting(hides_missing=False),
            with_setting(connections=1),
            with_setting(poisoned=()),
            with_setting(declines=None),
            *(with_setting(rounds=rounds) for rounds in range(schedule.plan.setting.rounds - 1, 0, -1)),
        ]
        return self._first(schedule, simpler)

    def _zeros(self, schedule: Schedule, name: str) -> Schedule:
        """Set as many choices as possible to their default: all, then halves, quarters, and so on."""
        size = len(getattr(schedule, name))
        while size:
            values: tuple[int, ...] = getattr(schedule, name)
            for start in range(0, len(values), size):
                if any(values[start : start + size]):
                    simpler = values[:start] + (0,) * len(values[start : start + size]) + values[start + size :]
                    candidate = replace(schedule, **{name: simpler})  # type: ignore[arg-type]
                    if self._breaks(candidate):
                        schedule, values = candidate, simpler
            size = size // 2 if self._left else 0
        return schedule


def _without_repetitions(trace: list[str]) -> list[str]:
    """Without requests that a process repeats while it waits."""
    kept: list[str] = []
    last: dict[str, str] = {}
    for line in trace:
        name, what = line[18:].split(None, 1)
        if last.get(name) != what:
            kept.append(line)
        last[name] = what
    return kept
