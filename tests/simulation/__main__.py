"""`python -m tests.simulation`: schedules of the control plane."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.shrinking import explored, shrunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--trace", type=int)
    parser.add_argument("--shrink", type=int)
    parser.add_argument("--which", default=None)
    options = parser.parse_args()
    if options.trace is not None:
        world = explored(options.trace, tracing=True)
        print("\n".join(world.trace))
        print(world.draws.made)
        print(world.violations)
        return 0
    if options.shrink is not None:
        world = explored(options.shrink)
        which = options.which or world.violations[0][0]
        names = shrunk(options.shrink, which)
        world = explored(options.shrink, names, tracing=True)
        print("\n".join(world.trace))
        print(world.draws.made)
        print(world.violations)
        return 0
    began = time.process_time()
    calls, reached, steps = 0, Counter(), 0
    broken = Counter()
    for seed in range(options.first, options.first + options.schedules):
        world = explored(seed)
        calls += sum(world.cloud.counts.values())
        steps += world.kernel.steps
        reached.update(world.reached)
        for violation in world.violations[:1]:
            broken[violation[0]] += 1
            if broken[violation[0]] <= 4:
                print(seed, *violation, flush=True)
    print(options.schedules, "schedules", calls, "calls", steps, "steps", time.process_time() - began, "s")
    for line in sorted(reached.items()):
        print(*line)
    print(broken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
