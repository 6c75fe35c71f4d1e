"""From a schedule that broke an invariant to a small one that breaks it in the same way, and its trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.exploration.draws import Plan, run_seed
from tests.exploration.schedules import Recorded, explore
from tests.exploration.world import Choices, World
from tests.support.exploring import minimized

TRIES_MAX = 300
# What a simpler setting has.
PLAIN: dict[str, Any] = {
    "fault_rate": 0.0,
    "hides_missing": False,
    "connections": 1,
    "poisoned": (),
    "declines": None,
    "overtaken": None,
}
RECORDS = ("faults", "activities", "orders")

# The name of an event, of a field of the setting, of a round, or of a recorded choice, and its number.
Choice = tuple[str, int]


@dataclass(frozen=True)
class Schedule:
    """A schedule as its choices: 0 is the fair order, no fault, the oldest activity."""

    plan: Plan
    orders: Sequence[int]
    faults: Sequence[int]
    activities: Sequence[int]

    def run(self, trace: list[str] | None = None) -> World:
        choices = Choices(None, [], list(self.faults), list(self.activities))
        return explore(self.plan.setting, Recorded(self.orders), self.plan.events, choices, trace)

    def choices(self) -> Iterator[Choice]:
        """All that could be simpler."""
        setting = self.plan.setting
        yield from (("event", number) for number in range(len(self.plan.events)))
        yield from ((name, 0) for name, plain in PLAIN.items() if getattr(setting, name) != plain)
        yield from (("round", number) for number in range(1, setting.rounds))
        for record in RECORDS:
            yield from ((record, number) for number, value in enumerate(getattr(self, record)) if value)

    def only(self, kept: Sequence[Choice]) -> Schedule:
        """With these choices; all others are plain."""
        found = set(kept)
        plain = {name: value for name, value in PLAIN.items() if (name, 0) not in found}
        rounds = 1 + sum(name == "round" for name, _ in found)
        events = tuple(event for number, event in enumerate(self.plan.events) if ("event", number) in found)
        records = {
            record: [value if (record, number) in found else 0 for number, value in enumerate(getattr(self, record))]
            for record in RECORDS
        }
        return Schedule(Plan(replace(self.plan.setting, rounds=rounds, **plain), events), **records)


def kind_of(problem: str) -> str:
    """A problem without its numbers, so that it is recognised in another schedule."""
    return re.sub(r"\d+", "", problem)[:60]


def shrunk(seed: int, front_end: str, tries: int = TRIES_MAX) -> tuple[Schedule, list[str]]:
    """The smallest schedule found in so many tries that has the first problem of the seed's, and its trace by lines."""
    plan, world = run_seed(seed, front_end)
    kind, record = kind_of(world.problems[0]), world.choices
    whole = Schedule(plan, record.orders, record.faults, record.activities)

    def breaks(kept: Sequence[Choice]) -> bool:
        return any(kind_of(problem) == kind for problem in whole.only(kept).run().problems)

    smallest = whole.only(minimized(list(whole.choices()), breaks, tries))
    trace: list[str] = []
    problems = smallest.run(trace).problems
    return smallest, [*_without_repetitions(trace), *problems]


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
