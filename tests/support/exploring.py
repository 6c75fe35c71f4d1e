"""What both explorations do: run many schedules in several processes, tell what they show, and make one smaller."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

CHUNK = 50  # schedules of one task of a worker
TOLD_AFTER = 1_000  # schedules between two lines of progress
# Until they are collected. The cycles of a schedule are small; Python's default would take a tenth of the time.
GARBAGE_OBJECTS = 50_000
SHOWN = 3  # kinds of violations that are shown as small schedules


@dataclass
class Tally:
    """What schedules have come to."""

    schedules: int = 0
    requests: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str, str]] = field(default_factory=list)
    """The first violation of each schedule: its seed, the kind, and what was found."""

    def add(self, other: Tally) -> None:
        """Count other schedules in."""
        self.schedules += other.schedules
        self.requests += other.requests
        self.seen += other.seen
        self.broken += other.broken

    def missing(self, expected: Iterable[str]) -> list[str]:
        """The transitions that no schedule has reached."""
        return [name for name in expected if not self.seen[name]]


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Meanwhile garbage is collected less often."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def tallied(
    run: Callable[[Sequence[int]], Tally], seeds: range, workers: int, prepare: Callable[[], None] | None = None
) -> Tally:
    """Run the schedules of these seeds. Violations and progress are printed.

    Args:
        run: a function of a module; it runs the schedules of some seeds in a process of its own.
        seeds: of the schedules.
        workers: how many processes.
        prepare: called in each of them first.
    """
    began, tally = time.monotonic(), Tally()
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(workers, initializer=prepare) as pool:
        for found in pool.map(run, chunks):
            tally.add(found)
            for seed, _, what in found.broken:
                print(f"seed {seed}: {what}", flush=True)
            if tally.schedules % TOLD_AFTER == 0:
                print(f"{_summary(tally, began)}; next seed {seeds.start + tally.schedules}", flush=True)
    print(_summary(tally, began), flush=True)
    return tally


def _summary(tally: Tally, began: float) -> str:
    broken, seconds = len(tally.broken), time.monotonic() - began
    return f"{tally.schedules:,} schedules, {tally.requests:,} requests, {broken:,} violations, {seconds:,.0f} s"


def told(tally: Tally, transitions: Sequence[str], show: Callable[[int], object]) -> bool:
    """Print what was reached and what is broken; whether nothing is, and all of `transitions` were reached."""
    for name in (*transitions, *sorted(tally.seen.keys() - set(transitions))):
        print(f"{tally.seen[name]:>12,}  {name}")
    for kind, count in Counter(kind for _, kind, _ in tally.broken).most_common():
        print(f"{count:>12,}  broken: {kind}")
    missing = tally.missing(transitions)
    for name in missing:
        print(f"never reached: {name}", flush=True)
    firsts = {kind: seed for seed, kind, _ in reversed(tally.broken)}
    for seed in list(firsts.values())[:SHOWN]:
        show(seed)  # last, because it takes minutes to make schedules small
    return not tally.broken and not missing


def told_defects(names: Sequence[str], found: Iterable[tuple[int, str] | None]) -> bool:
    """Print which schedule found each defect, and by what; whether all were found."""
    missed = 0
    for name, one in zip(names, found, strict=True):
        missed += one is None
        print(f"{f'schedule {one[0] + 1:,}: {one[1]}' if one else 'NOT FOUND':<80}  {name}", flush=True)
    print(f"{len(names) - missed} of {len(names)} defects found")
    return not missed


def minimized(choices: list[T], breaks: Callable[[Sequence[T]], bool], tries: int) -> list[T]:
    """Delta debugging: leave out ever smaller parts for as long as the rest still breaks the invariant."""
    size = len(choices)
    while size and tries:
        at, removed = 0, False
        while at < len(choices) and tries:
            tries -= 1
            rest = choices[:at] + choices[at + size :]
            if breaks(rest):
                choices, removed = rest, True
            else:
                at += size
        size = min(size, len(choices)) if removed and size == 1 else size // 2
    return choices
