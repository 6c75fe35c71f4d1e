"""`python -m tests.exploration`: more schedules of the rendezvous than a test has time for.

python -m tests.exploration 100000 --seed 0      # random schedules, a tenth of them with torchft's front end
python -m tests.exploration 2000 --front-end torchft   # all of them with it
python -m tests.exploration 5000 --delays        # every pair of delays, close to the fair order
python -m tests.exploration defects              # puts seeded defects back, one at a time: each must be found
python -m tests.exploration --show SEED          # one schedule, shrunk if it breaks an invariant
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations, islice

from tests.exploration import transitions
from tests.exploration.defects import DEFECTS, SCHEDULES_MAX, find
from tests.exploration.draws import FRONT_ENDS, front_end_of, run_seed
from tests.exploration.schedules import Delayed, explore
from tests.exploration.shrink import shrunk
from tests.exploration.simulated import simulated
from tests.exploration.world import Setting

DELAYED = Setting(rounds=2, snapshot_rounds=1, grace_seconds=0.5)
PAUSE = 150
CHUNK = 50  # schedules per task of a worker
REPORTED = 1_000  # schedules between two lines of progress
SHOWN = 3  # violations that are shrunk


@dataclass
class Tally:
    """What some schedules came to."""

    schedules: int = 0
    requests: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.requests += other.requests
        self.broken += other.broken
        self.seen += other.seen


def main() -> int:
    """0 if no schedule broke an invariant and every rare transition was reached."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.exploration", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("schedules", nargs="?", default="10000", help="how many; or `defects`")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no schedule after so many seconds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--delays", action="store_true", help="every pair of delays, instead of random schedules")
    parser.add_argument("--show", type=int, metavar="SEED", help="show one schedule")
    parser.add_argument("--front-end", choices=FRONT_ENDS, help="train all schedules with this one")
    options = parser.parse_args()
    if options.show is not None:
        return _show(options.show, options.front_end or front_end_of(options.show))
    if options.schedules == "defects":
        return _defects()
    number = int(options.schedules)
    if options.delays:
        return _delays(number)
    seeds = range(options.seed, options.seed + number)
    return _explore([(seed, options.front_end or front_end_of(seed)) for seed in seeds], options)


def _explore(seeds: Sequence[tuple[int, str]], options: argparse.Namespace) -> int:
    workers = options.workers
    began, tally = time.monotonic(), Tally()
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(workers, initializer=_freeze) as pool:
        ends = began + options.seconds
        for found in pool.map(_chunk, chunks, [ends] * len(chunks)):
            tally.add(found)
            for seed, problem in found.broken:
                print(f"seed {seed}: {problem}", flush=True)
            if tally.schedules % REPORTED == 0:
                took = time.monotonic() - began
                print(f"{tally.schedules:,} schedules, {tally.requests:,} requests, {took:,.0f} s", flush=True)
    took = time.monotonic() - began
    print("Transitions, and how often they were reached:")
    print(transitions.table(tally.seen))
    # Some are of one front end alone.
    missed = [] if options.front_end else transitions.unreached(tally.seen)
    print(
        f"{tally.schedules:,} schedules, {tally.requests:,} requests, {len(tally.broken)} broken, "
        f"{took:,.0f} s with {workers} processes ({tally.schedules / took:,.0f} schedules per second)"
    )
    for name in missed:
        print(f"never reached: {name}", flush=True)
    # Last, because shrinking takes minutes.
    for seed, _ in tally.broken[:SHOWN]:
        _show(seed, dict(seeds)[seed])
    return 1 if tally.broken or missed else 0


def _freeze() -> None:
    """What is imported stays, PyTorch included: no collection of garbage need look at it."""
    import tests.exploration.torchft_trainer  # noqa: F401, PLC0415

    gc.freeze()


def _chunk(seeds: Sequence[tuple[int, str]], ends: float) -> Tally:
    tally = Tally()
    with simulated():
        for seed, front_end in seeds:
            # The clock is the machine's, the same in every process.
            if time.monotonic() > ends:
                break
            world = run_seed(seed, front_end)[1]
            tally.schedules += 1
            tally.requests += world.steps
            tally.seen += world.seen
            if world.problems:
                tally.broken.append((seed, world.problems[0]))
    return tally


def _show(seed: int, front_end: str) -> int:
    """Print a seed's schedule, shrunk if it breaks an invariant."""
    with simulated():
        plan, world = run_seed(seed, front_end)
        print(f"seed {seed}: {plan}")
        if not world.problems:
            print("no invariant is broken")
            return 0
        smallest, trace = shrunk(seed, front_end)
    print(f"shrunk: {smallest.plan}")
    print("\n".join(trace), flush=True)
    return 1


def _defects() -> int:
    missed = 0
    for defect in DEFECTS:
        with simulated():
            found = find(defect, range(SCHEDULES_MAX))
        missed += found is None
        print(f"{defect.name:48s} {f'schedule {found[0] + 1}: {found[1]}' if found else 'NOT FOUND'}", flush=True)
    print(f"{len(DEFECTS) - missed} of {len(DEFECTS)} defects found within {SCHEDULES_MAX} schedules each")
    return 1 if missed else 0


def _delays(number: int) -> int:
    began, tally = time.monotonic(), Tally()
    with simulated():
        for pair in islice(_pairs(), number):
            world = explore(DELAYED, Delayed(pair, PAUSE))
            tally.schedules += 1
            tally.requests += world.steps
            if world.problems:
                tally.broken.append((tally.schedules, world.problems[0]))
                print(f"delays {pair}: {world.problems[0]}", flush=True)
    took = time.monotonic() - began
    print(f"{tally.schedules:,} schedules, {tally.requests:,} requests, {len(tally.broken)} broken, {took:,.0f} s")
    return 1 if tally.broken else 0


def _pairs() -> Iterator[tuple[int, int]]:
    plain = Delayed((), PAUSE)
    explore(DELAYED, plain)
    return combinations(range(1, plain.steps + 1), 2)


if __name__ == "__main__":
    sys.exit(main())
