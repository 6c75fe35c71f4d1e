"""Remove all options at once, then each alone, and check what is left: `python -m tests.options [OPTION...]`.

Without any option the types of the core are right, its unit tests pass and the demo succeeds; without one, the types of
all the rest are. Exit code 1 where something fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT

from rich.console import Console
from rich.table import Table

from tests.options.removal import option_names, remove
from tests.support.source_patch import ROOT, copied_tree

TYPES = ("types", ("mypy",))
UNIT_TESTS = ("unit tests", ("pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", "tests/unit"))
DEMO = ("demo", ("examples.digits.demo",))
_CACHE = ".mypy_cache"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every check passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.options", description=__doc__)
    parser.add_argument("option", nargs="*", metavar="OPTION", help="only without these, one after another")
    parser.add_argument("--no-demo", action="store_true", help="leave the demo out, which takes a minute")
    asked = parser.parse_args(arguments)
    names = option_names()
    if unknown := sorted(set(asked.option) - set(names)):
        parser.error(f"there is no option {', '.join(unknown)}; there are {', '.join(names)}")
    trials = [([name], [TYPES]) for name in asked.option or names]
    if not asked.option:
        trials.insert(0, (names, [TYPES, UNIT_TESTS, *([] if asked.no_demo else [DEMO])]))
    if not (ROOT / _CACHE).is_dir():
        # All copies start from it, and mypy then takes seconds instead of minutes.
        _run(ROOT, TYPES[1], "types with all options")
    table, failed = Table("without", "files removed with it", "check", "result", "seconds"), 0
    for options, checks in trials:
        with _tree_without(options) as (tree, removed):
            title = options[0] if len(options) == 1 else "any option"
            for name, command in checks:
                began = time.monotonic()
                code = _run(tree, command, f"{name} without {title}")
                failed += code != 0
                result = "failed" if code else "passed"
                table.add_row(title, str(len(removed)), name, result, f"{time.monotonic() - began:.0f}")
    Console(highlight=False).print(table)
    return 1 if failed else 0


@contextmanager
def _tree_without(options: Sequence[str]) -> Iterator[tuple[Path, set[str]]]:
    with copied_tree() as tree:
        if (ROOT / _CACHE).is_dir():
            shutil.copytree(ROOT / _CACHE, tree / _CACHE)
        yield tree, remove(tree, options)


def _run(tree: Path, command: Sequence[str], title: str) -> int:
    """Run a module in a tree. What it prints is shown where it fails."""
    # Every process of it imports this copy, and not the tree for which the environment was installed.
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=tree, env=environment, check=False, stdout=PIPE, stderr=STDOUT)
    if done.returncode:
        print(f"{title}:\n{done.stdout.decode(errors='replace')}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
