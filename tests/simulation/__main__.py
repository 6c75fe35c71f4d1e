"""`python -m tests.simulation`: schedules of the control plane."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.functions import installed
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--trace", type=int)
    options = parser.parse_args()
    if options.trace is not None:
        world = World(options.trace, tracing=True)
        with installed(world):
            world.run()
        print("\n".join(world.trace))
        print(world.draws.made)
        print(world.violations)
        return 0
    began = time.process_time()
    calls, reached, steps = 0, Counter(), 0
    for seed in range(options.first, options.first + options.schedules):
        world = World(seed)
        with installed(world):
            world.run()
        calls += sum(world.cloud.counts.values())
        steps += world.kernel.steps
        reached.update(world.reached)
        for violation in world.violations:
            print(seed, *violation)
    print(options.schedules, "schedules", calls, "calls", steps, "steps", time.process_time() - began, "s")
    for line in sorted(reached.items()):
        print(*line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
