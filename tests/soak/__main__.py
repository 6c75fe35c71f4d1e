"""`python -m tests.soak [--runs N] [--seed S] [--at-once N]`: a night on the embedded cloud, under random faults."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.night import Night, pass_night, stack_in

_REPLICAS = 4


def main() -> int:
    """0 if every verdict is true and nothing is left; otherwise each violation is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help=f"how many, each of {_REPLICAS} replicas")
    parser.add_argument("--seed", type=int, default=None, help="decides the faults; a random one without it")
    parser.add_argument("--at-once", type=int, default=4, help="how many runs at once")
    options = parser.parse_args()
    night = Night(random.randrange(10**6) if options.seed is None else options.seed)  # noqa: S311
    print(f"seed {night.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="muster-soak-") as folder:
        # One run fewer than there are at once has room: the last one waits in the run queue.
        places = max(options.at_once - 1, 1) * _REPLICAS
        with stack_in(Path(folder), places) as stack:
            pass_night(stack, night, runs=options.runs, replicas=_REPLICAS, at_once=options.at_once)
    for name, count in sorted(night.counts.items()):
        print(f"{count:>6}  {name}")
    for violation in night.violations:
        print(f"VIOLATION  {violation}")
    found = len(night.violations)
    print(f"{options.runs} runs, {night.seconds:.0f} s, {found} violations, seed {night.seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
