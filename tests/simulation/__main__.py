"""`python -m tests.simulation explore | replay | defects | hangs`: the control plane under faults, in virtual time.

`explore` runs many schedules. The first violations are shrunk to the fewest choices that still cause them, and printed
with what happened. `replay SEED` prints what happens in one schedule, `--only` with these choices alone. `defects` puts
known defects in, one after the other, and finds them. `hangs` lets each service hang for two hours at each step of a
run, and prints a table.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.simulation.defects import DEFECTS, hunted
from tests.simulation.exploration import explore, explored, shrunk
from tests.simulation.hangs import cases, hang
from tests.simulation.scenario import Kind
from tests.simulation.transitions import TRANSITIONS
from tests.support.exploring import tallied, told, told_defects


def main() -> bool:
    """Whether no schedule broke an invariant and every transition was reached; or every defect was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("explore", help="run many schedules")
    many.add_argument("--schedules", type=int, default=100_000)
    many.add_argument("--seed", type=int, default=0, help="the first one")
    one = commands.add_parser("replay", help="print one schedule")
    one.add_argument("seed", type=int)
    one.add_argument("--only", nargs="*", help="names of choices; all others are plain")
    one.add_argument("--shrink", action="store_true", help="with the fewest choices that break the same invariant")
    bad = commands.add_parser("defects", help="put known defects in, one after the other, and find them")
    bad.add_argument("names", nargs="*", help="these; all without any")
    bad.add_argument("--schedules", type=int, default=5_000, help="at most, for each")
    commands.add_parser("hangs", help="let each service hang for two hours, at each step of a run")
    for kinds in (many, one):
        kinds.add_argument("--kind", type=Kind, choices=list(Kind), default=Kind.MIXED, help="of all runs")
    for parallel in (many, bad):
        parallel.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.command == "replay":
        return _show(options.seed, options.only, kind=options.kind, shrinks=options.shrink)
    if options.command == "explore":
        seeds = range(options.seed, options.seed + options.schedules)
        tally = tallied(partial(explore, kind=options.kind), seeds, options.workers, gc.freeze)
        # Some transitions are of other kinds.
        transitions = TRANSITIONS if options.kind is Kind.MIXED else ()
        return told(tally, transitions, lambda seed: _show(seed, kind=options.kind, shrinks=True))
    if options.command == "hangs":
        return _hangs()
    names = options.names or list(DEFECTS)
    with ThreadPoolExecutor(options.workers) as pool:
        return told_defects(names, pool.map(lambda name: hunted(name, options.schedules), names))


def _hangs() -> bool:
    """Print a row for each service and step; whether every run survived."""
    rows = [(case, hang(case)) for case in cases()]
    print(f"{'a service that hangs for two hours':<36}{'from the step':<20}{'the run ended after':>20}  by Lambda")
    for case, survived in rows:
        what = f"{case.service}{', on a cluster' * case.clusters}"
        problems = "".join(f"\n    {problem}" for problem in survived.problems)
        print(f"{what:<36}{case.step.name:<20}{survived.ended:>18,.0f} s  {survived.timeouts}{problems}")
    return not any(survived.problems for _, survived in rows)


def _show(seed: int, only: Sequence[str] | None = None, *, kind: Kind, shrinks: bool) -> bool:
    """Print a schedule; whether it breaks no invariant."""
    if shrinks and (violations := explored(seed, kind=kind).violations):
        only = shrunk(seed, violations[0][0], kind)
    world = explored(seed, only, tracing=True, kind=kind)
    print(f"--- seed {seed}")
    for name, chosen in world.draws.made.items():
        print(f"choice {name}: {chosen}")
    print("\n".join(world.trace))
    return not world.violations


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
