"""`python -m tests.exploration [--schedules N] [--from SEED] [--delays]`: more schedules than a test has time for."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import combinations

from tests.exploration.schedules import Delayed, explore, explore_randomly, small_shards
from tests.exploration.world import Setting, World

SETTING = Setting(rounds=2, snapshot_rounds=1, grace_seconds=0.5)
PAUSE = 150


def main() -> int:
    """0 if no schedule broke an invariant; the first that do are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000, help="how many, at most")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--delays", action="store_true", help="every pair of delays, instead of random schedules")
    options = parser.parse_args()
    began, ran, steps, broken = time.monotonic(), 0, 0, 0
    with small_shards():
        for name, world in _pairs() if options.delays else _random(options.first):
            ran, steps = ran + 1, steps + sum(process.steps for process in world.processes)
            if world.problems:
                broken += 1
                print(f"{name}: {world.problems[0]}", flush=True)
            if ran == options.schedules:
                break
    print(f"{ran} schedules, {steps} steps, {broken} broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def _random(first: int) -> Iterator[tuple[str, World]]:
    for seed in range(first, sys.maxsize):
        yield f"seed {seed}", explore_randomly(seed)


def _pairs() -> Iterator[tuple[str, World]]:
    plain = Delayed((), PAUSE)
    explore(SETTING, plain)
    for pair in combinations(range(1, plain.steps + 1), 2):
        yield f"delays {pair}", explore(SETTING, Delayed(pair, PAUSE))


if __name__ == "__main__":
    sys.exit(main())
