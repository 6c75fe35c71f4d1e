"""`python -m tests.exploration`: more schedules of the rendezvous than a test has time for.

python -m tests.exploration 100000 --seed 0      # random schedules, a tenth of them with torchft's front end
python -m tests.exploration 2000 --front-end torchft   # all of them with it
python -m tests.exploration defects              # puts known defects in, one at a time: each must be found
python -m tests.exploration --show SEED          # one schedule, shrunk if it breaks an invariant
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.exploration.defects import DEFECTS, find
from tests.exploration.draws import FRONT_ENDS, front_end_of, run_seed
from tests.exploration.shrink import kind_of, shrunk
from tests.exploration.simulated import simulated
from tests.exploration.transitions import REACHED
from tests.support.exploring import Tally, tallied, told, told_defects

SCHEDULES_MAX = 10_000  # for each defect


def main() -> bool:
    """Whether no schedule broke an invariant and every transition was reached; or every defect was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.exploration", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("schedules", nargs="?", default="10000", help="how many; or `defects`")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--show", type=int, metavar="SEED", help="show one schedule")
    parser.add_argument("--front-end", choices=FRONT_ENDS, help="train all schedules with this one")
    options = parser.parse_args()
    if options.show is not None:
        return _show(options.show, options.front_end)
    if options.schedules == "defects":
        with ProcessPoolExecutor(options.workers, initializer=_freeze) as pool:
            return told_defects(list(DEFECTS), pool.map(_found, DEFECTS))
    seeds = range(options.seed, options.seed + int(options.schedules))
    tally = tallied(partial(_explore, front_end=options.front_end), seeds, options.workers, _freeze)
    # Some transitions are of one front end alone.
    return told(tally, () if options.front_end else REACHED, partial(_show, front_end=options.front_end))


def _freeze() -> None:
    """What is imported stays, PyTorch included: no collection of garbage need look at it."""
    import tests.exploration.torchft_trainer  # noqa: F401, PLC0415

    gc.freeze()


def _found(defect: str) -> tuple[int, str] | None:
    with simulated():
        return find(DEFECTS[defect], range(SCHEDULES_MAX))


def _explore(seeds: Sequence[int], front_end: str | None) -> Tally:
    tally = Tally()
    with simulated():
        for seed in seeds:
            world = run_seed(seed, front_end or front_end_of(seed))[1]
            broken = [(seed, kind_of(problem), problem) for problem in world.problems[:1]]
            tally.add(Tally(1, world.steps, world.seen, broken))
    return tally


def _show(seed: int, front_end: str | None) -> bool:
    """Print a seed's schedule, shrunk if it breaks an invariant; whether it breaks none."""
    front_end = front_end or front_end_of(seed)
    with simulated():
        plan, world = run_seed(seed, front_end)
        print(f"seed {seed}: {plan}")
        if not world.problems:
            print("no invariant is broken")
            return True
        smallest, trace = shrunk(seed, front_end)
    print(f"shrunk: {smallest.plan}")
    print("\n".join(trace), flush=True)
    return False


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
