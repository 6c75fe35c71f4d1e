"""Schedules by their seeds: one, many of them, and the fewest choices with which one breaks the same invariant."""

from collections.abc import Sequence

from tests.simulation.functions import installed
from tests.simulation.scenario import Kind
from tests.simulation.world import World
from tests.support.exploring import Tally, minimized, rarely_collected

_MOST_RUNS = 600


def explored(seed: int, only: Sequence[str] | None = None, *, tracing: bool = False, kind: Kind = Kind.MIXED) -> World:
    world = World(seed, only, tracing=tracing, kind=kind)
    with installed(world), rarely_collected():
        world.run()
    return world


def explore(seeds: Sequence[int], kind: Kind = Kind.MIXED) -> Tally:
    tally = Tally()
    for seed in seeds:
        world = explored(seed, kind=kind)
        broken = [(seed, invariant, f"{invariant}: {what}") for invariant, what in world.violations[:1]]
        tally.add(Tally(1, sum(world.cloud.counts.values()), world.reached, broken))
    return tally


def shrunk(seed: int, invariant: str, kind: Kind = Kind.MIXED) -> list[str]:
    """The names of the choices without which the schedule no longer breaks the invariant."""

    def breaks(only: Sequence[str]) -> bool:
        return any(found == invariant for found, _ in explored(seed, only, kind=kind).violations)

    return minimized(list(explored(seed, kind=kind).draws.made), breaks, _MOST_RUNS)
