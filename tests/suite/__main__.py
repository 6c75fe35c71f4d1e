"""`python -m tests.suite merge | release [GROUP...]`: runs the tests and prints a table of what was run.

`merge` is what a change must pass. `release` is that and everything rare and long, group by group. It continues where
an earlier call with the same files was interrupted; a group that is named is run in any case.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.table import Table

from tests.suite.groups import MERGE, Group, groups
from tests.suite.progress import is_green, note_green, state_of_the_tree
from tests.suite.session import Report, Session
from tests.support.source_patch import ROOT

_RESULTS = ROOT / "build" / "test"
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="processes of the longest session (4)")
    known = {group.name: group for group in groups()}
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("merge")
    commands.add_parser("release").add_argument("group", nargs="*", metavar="GROUP", help=", ".join(known))
    options = parser.parse_args(arguments)
    if options.command == "merge":
        return _merge(options.workers)
    unknown = [name for name in options.group if name not in known]
    if unknown:
        parser.error(f"there is no group {', '.join(unknown)}; there are {', '.join(known)}")
    return _release([known[name] for name in options.group] or list(known.values()), options, bool(options.group))


def _merge(workers: int) -> int:
    # No worker of the larger session imports PyTorch, which takes seconds and half a gigabyte each.
    main_session = Session("main", ["-n", str(workers), *_BY_FILE], _RESULTS)
    torch = Session("torch", ["-n", "0", "tests/torch"], _RESULTS)
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(torch.run, shown=False)
        reports = [main_session.run(), beside.result()]
    print(torch.log.read_text(encoding="utf-8", errors="replace"))
    _print_layers(reports, time.monotonic() - began)
    return max(report.code for report in reports)


def _print_layers(reports: Iterable[Report], seconds: float) -> None:
    table = Table("layer", "items", "failed", "seconds of a worker")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [(layer, report) for report in reports for layer in report.items]
    for layer, report in sorted(rows, key=lambda row: -row[1].took[row[0]]):
        table.add_row(layer, f"{report.items[layer]:,}", str(report.failed[layer]), f"{report.took[layer]:,.0f}")
    console = Console(highlight=False)
    console.print(table)
    peaks = ", ".join(f"{peak / 1e6:,.0f}" for report in reports for peak in sorted(report.peaks))
    items = sum(sum(report.items.values()) for report in reports)
    console.print(f"{items:,} items in {_minutes(seconds)}; memory of the processes in MB: {peaks}")


def _release(chosen: Sequence[Group], options: argparse.Namespace, again: bool) -> int:
    tree, console = state_of_the_tree(), Console(highlight=False)
    table = Table("group", "result", "time")
    failed = []
    for number, group in enumerate(chosen, start=1):
        console.rule(f"{number} of {len(chosen)}: {group.name}")
        if not again and is_green(group.name, tree):
            console.print("It passed already with these files.")
            table.add_row(group.name, "passed before", "")
            continue
        began = time.monotonic()
        code = _run(group, options.workers)
        seconds = time.monotonic() - began
        table.add_row(group.name, "failed" if code else "passed", _minutes(seconds))
        if code:
            failed.append(group.name)
        elif state_of_the_tree() == tree:
            note_green(group.name, tree, seconds)
    console.print(table)
    if failed:
        console.print(f"Failed: {', '.join(failed)}. One again: make test-release GROUP={failed[0]}")
    return 1 if failed else 0


def _run(group: Group, workers: int) -> int:
    if group.name == MERGE:
        return _merge(workers)
    if group.module:
        return subprocess.run([sys.executable, "-m", *group.module], cwd=ROOT, check=False).returncode
    return Session(group.name, ["-n", "2", *_BY_FILE, *group.paths], _RESULTS, group.environment).run().code


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


if __name__ == "__main__":
    sys.exit(main())
