"""`python -m bench.structure`: all counts as a table and in build/bench/structure.json, or the places behind one."""

from __future__ import annotations

import argparse
import sys

from bench.__main__ import main as run_benchmarks
from bench.structure.metrics import METRICS
from bench.structure.sources import read_sources


def main(arguments: list[str]) -> int:
    """Print the table of all counts; with `--list METRIC` the places that this one counts, largest first."""
    parser = argparse.ArgumentParser(prog="python -m bench.structure", description=__doc__)
    names = {metric.key: metric for metric in METRICS}
    parser.add_argument("--list", choices=names, metavar="METRIC", help=f"one of: {', '.join(names)}")
    metric = names.get(parser.parse_args(arguments).list)
    if metric is None:
        return run_benchmarks(["structure"])
    findings = sorted(metric.find(read_sources()), key=lambda found: (-found.size, found.path, found.line))
    for found in findings:
        print(f"{found.path}:{found.line}  {found.text}")
    print(f"{metric.name}: {metric.value(findings):,} (aim: {metric.aim or 'none'}, before: {metric.before:,})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
