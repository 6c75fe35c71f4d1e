"""Run benchmarks, write their rows to build/bench/<name>.json and print them as one table."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

from rich.console import Console

import bench
from bench.known import Known, known_rows, of_no_row
from bench.table import Row, print_table, write_rows

_LOG_WIDTH = 180


def main(names: list[str]) -> int:
    """Run the benchmarks named, or all but those that are run on request only.

    The exit code: 1 if one crashed, 2 for an unknown name; a missed aim is no failure.
    """
    console = Console(stderr=True)
    known_names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__))
    unknown = [name for name in names if name not in known_names]
    benchmarks = discover(known_names if unknown or not names else names)
    if unknown or not all(name in benchmarks for name in names):
        console.print(f"There is no benchmark {', '.join(names)}; there are {', '.join(benchmarks)}.")
        return 2
    results: dict[str, list[Row]] = {}
    crashed = []
    for name in names or [name for name, module in benchmarks.items() if not getattr(module, "ON_REQUEST", False)]:
        console.print(f"Running {name} ...")
        try:
            results[name] = benchmarks[name].run()
        except Exception:
            traceback.print_exc()
            crashed.append(name)
        else:
            write_rows(name, results[name])
    # Without a terminal (in a log or a file), notes are not wrapped.
    known = known_rows()
    print_table(results, known, Console() if sys.stdout.isatty() else Console(width=_LOG_WIDTH))
    for benchmark, rows in results.items():
        for name in of_no_row(known.get(benchmark, {}), (row.name for row in rows)):
            console.print(f"bench/known_rows.toml knows a row that {benchmark} does not print: {name!r}.")
        for row in rows:
            if row.ok is False and not known.get(benchmark, {}).get(row.name, Known()).missed:
                console.print(f"{benchmark} misses the aim of {row.name!r}; bench/known_rows.toml does not say why.")
    if crashed:
        console.print(f"[bold red]Crashed: {', '.join(crashed)}.[/] What happened is said above.")
    return 1 if crashed else 0


def discover(names: Iterable[str]) -> dict[str, ModuleType]:
    """Those of these modules of this package that have a `run`, which gives their rows. Some import what takes long."""
    modules = {name: importlib.import_module(f"bench.{name}") for name in names if not name.startswith("_")}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
