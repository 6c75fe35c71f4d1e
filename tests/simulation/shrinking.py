"""From a schedule that breaks an invariant to the fewest choices that still do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.functions import installed
from tests.simulation.world import World

_MOST_RUNS = 600


def explored(seed: int, only: Sequence[str] | None = None, *, tracing: bool = False) -> World:
    """Run a schedule."""
    world = World(seed, only, tracing=tracing)
    with installed(world):
        world.run()
    return world


def shrunk(seed: int, invariant: str) -> list[str]:
    """The names of the choices without which the schedule no longer breaks the invariant."""
    runs = 0

    def breaks(only: Sequence[str]) -> bool:
        nonlocal runs
        runs += 1
        return runs <= _MOST_RUNS and any(found == invariant for found, _ in explored(seed, only).violations)

    names = list(explored(seed).draws.made)
    return minimized(names, breaks)


def minimized(names: list[str], breaks: Callable[[Sequence[str]], bool]) -> list[str]:
    """Delta debugging: leave out ever smaller parts for as long as the rest still breaks the invariant."""
    size = max(1, len(names) // 2)
    while True:
        at, removed = 0, False
        while at < len(names):
            rest = names[:at] + names[at + size :]
            if breaks(rest):
                names, removed = rest, True
            else:
                at += size
        if size == 1 and not removed:
            return names
        size = max(1, size // 2) if not removed or size > 1 else 1
