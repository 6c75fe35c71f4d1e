"""Many schedules: in chunks, in several processes; what was reached, and what was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.simulation.shrinking import explored

CHUNK = 100


@dataclass
class Explored:
    """What schedules have shown."""

    schedules: int = 0
    calls: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    found: list[tuple[int, str, str]] = field(default_factory=list)
    """The first violation of each schedule: its seed, the invariant, and what was found."""

    def add(self, other: Explored) -> None:
        """Count another exploration in."""
        self.schedules += other.schedules
        self.calls += other.calls
        self.reached.update(other.reached)
        self.found += other.found


def explore(seeds: range) -> Explored:
    """Run the schedules of these seeds."""
    found = Explored()
    for seed in seeds:
        world = explored(seed)
        found.schedules += 1
        found.calls += sum(world.cloud.counts.values())
        found.reached.update(world.reached)
        for invariant, what in world.violations[:1]:
            found.found.append((seed, invariant, what))
    return found


def explore_in_parallel(seeds: range, workers: int) -> Iterator[Explored]:
    """The same in several processes, chunk by chunk."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if workers == 1:
        yield from map(explore, chunks)
        return
    with ProcessPoolExecutor(max_workers=workers) as pool:
        yield from pool.map(explore, chunks)
