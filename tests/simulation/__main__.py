"""`python -m tests.simulation explore | replay`: the control plane under faults, in virtual time.

`explore` runs many schedules. The first violations are shrunk to the fewest choices that still cause them, and printed
with what happened. `replay SEED` prints what happens in one schedule, `--only` with these choices alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.simulation.defects import DEFECTS, hunted
from tests.simulation.exploration import Explored, explore_in_parallel
from tests.simulation.shrinking import explored, shrunk
from tests.simulation.transitions import TRANSITIONS
from tests.simulation.world import World

_REPORT = Path(__file__).parents[2] / "build" / "explore.json"
_SHRUNK = 3
_TOLD_AFTER = 2_500


def main() -> int:
    """0 if no schedule broke an invariant, and every transition was reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("explore", help="run many schedules")
    many.add_argument("--schedules", type=int, default=100_000)
    many.add_argument("--seed", type=int, default=0, help="the first one")
    many.add_argument("--workers", type=int, default=2)
    one = commands.add_parser("replay", help="print one schedule")
    one.add_argument("seed", type=int)
    one.add_argument("--only", nargs="*", help="names of choices; all others are plain")
    one.add_argument("--shrink", action="store_true", help="with the fewest choices that break the same invariant")
    bad = commands.add_parser("defects", help="put known defects in, one after the other, and find them")
    bad.add_argument("names", nargs="*", help="these; all without any")
    bad.add_argument("--schedules", type=int, default=5_000, help="at most, for each")
    bad.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    return {"explore": _explore, "replay": _replay, "defects": _defects}[options.command](options)


def _explore(options: argparse.Namespace) -> int:
    began, total = time.monotonic(), Explored()
    for part in explore_in_parallel(range(options.seed, options.seed + options.schedules), options.workers):
        for seed, invariant, what in part.found:
            print(f"seed {seed}: {invariant}: {what}", flush=True)
        total.add(part)
        if total.schedules % _TOLD_AFTER == 0:
            seconds = time.monotonic() - began
            print(f"{total.schedules:,} schedules, {len(total.found):,} violations, {seconds:,.0f} s", flush=True)
    seconds = time.monotonic() - began
    firsts = {invariant: seed for seed, invariant, _ in reversed(total.found)}
    for invariant, seed in list(firsts.items())[:_SHRUNK]:
        _show(seed, shrunk(seed, invariant))
    missing = [name for name in TRANSITIONS if not total.reached[name]]
    others = sorted(total.reached.keys() - set(TRANSITIONS))
    for name in (*TRANSITIONS, *others):
        print(f"{total.reached[name]:>9,}  {name}")
    broken = Counter(invariant for _, invariant, _ in total.found)
    print(f"{total.schedules:,} schedules, {total.calls:,} calls, {seconds:,.0f} s, {len(total.found):,} violations")
    for invariant, count in broken.most_common():
        print(f"{count:>9,}  broken: {invariant}")
    for name in missing:
        print(f"never reached: {name}")
    _REPORT.parent.mkdir(exist_ok=True)
    report = {
        "schedules": total.schedules,
        "calls": total.calls,
        "seconds": round(seconds),
        "violations": len(total.found),
        "reached": {name: total.reached[name] for name in TRANSITIONS},
    }
    _REPORT.write_text(json.dumps(report, indent=1))
    return 1 if broken or missing else 0


def _defects(options: argparse.Namespace) -> int:
    names = options.names or [defect.name for defect in DEFECTS]
    missed = 0
    with ThreadPoolExecutor(max_workers=options.workers) as pool:
        for name, found in zip(names, pool.map(lambda name: hunted(name, options.schedules), names), strict=True):
            missed += found.invariant is None
            what = f"{found.schedules:>6,} schedules: {found.invariant}" if found.invariant else "not found"
            print(f"{what:<60}  {name}", flush=True)
    print(f"{len(names) - missed} of {len(names)} defects found")
    return 1 if missed else 0


def _replay(options: argparse.Namespace) -> int:
    only = options.only
    if options.shrink:
        violations = explored(options.seed).violations
        if not violations:
            print("no invariant is broken")
            return 0
        only = shrunk(options.seed, violations[0][0])
    return 1 if _show(options.seed, only).violations else 0


def _show(seed: int, only: list[str] | None) -> World:
    world = explored(seed, only, tracing=True)
    print(f"--- seed {seed}")
    for name, chosen in world.draws.made.items():
        print(f"choice {name}: {chosen}")
    print("\n".join(world.trace))
    return world


if __name__ == "__main__":
    sys.exit(main())
