"""Each mutant against the unit and fault tests that run its function, the quickest first: which of them fail.

A test that never enters the function cannot see the mutant, so it is not tried. Which test enters which function is
found first, in one run of all these tests in a copy of the tree whose functions note it.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

from tests.mutants.forked import run_tests
from tests.mutants.table import Mutant
from tests.suite.progress import state_of_the_tree
from tests.support.source_patch import ROOT, copied_tree, function_in, patched

TABLE = ROOT / "build" / "mutants" / "matrix.tsv"
"""The result: a mutant, how many tests kill it, and the quickest of them."""
NAMED = 5
"""How many tests a row names."""
_LAYERS = ("tests/unit", "tests/faults")
_SECONDS_MAX = 3.0
"""How much of the tests that run a mutant's function is tried, the quickest first, beside the one that it names."""
_STATE = ROOT / "build" / "mutants" / "matrix.jsonl"
_PROBE = """
import os

seen = set()

def enter(name):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].partition("[")[0]
    if test and (test, name) not in seen:
        seen.add((test, name))
        with open(os.path.join({folder!r}, str(os.getpid())), "a") as file:
            print(test, name, sep="\\t", file=file)
"""


class ReachError(Exception):
    """The tests fail while they are watched."""


def write_matrix(mutants: Sequence[Mutant], workers: int, table: Path = TABLE) -> int:
    """Try all, print each, and write `table`; how many no test kills that was tried.

    An interrupted call is continued, as long as no file changes.
    """
    tree = state_of_the_tree()
    seconds, reached = _what_tests_do(mutants)
    rows = {name: killers for name, killers in _tried(tree).items() if name in {mutant.name for mutant in mutants}}
    waiting = [mutant for mutant in mutants if mutant.name not in rows]
    for mutant, killers in _all_killers(waiting, reached, seconds, workers):
        rows[mutant.name] = killers
        _note(tree, mutant.name, killers)
        print(f"{len(rows):>4} of {len(mutants)}  {len(killers):>4} tests kill: {mutant.name}", flush=True)
    lines = ["mutant\tkilled by\tthe quickest of them"]
    for mutant in mutants:
        killers = sorted(rows[mutant.name], key=lambda test: (seconds.get(test, 0.0), test))
        lines.append(f"{mutant.name}\t{len(killers)}\t{' '.join(killers[:NAMED])}")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(not killers for killers in rows.values())


def _what_tests_do(mutants: Sequence[Mutant]) -> tuple[dict[str, float], dict[str, set[str]]]:
    """The seconds of each test, and the tests that enter each mutated function, as `file::function`."""
    with copied_tree() as copy, tempfile.TemporaryDirectory() as folder:
        noted, report = Path(folder, "noted"), Path(folder, "report.xml")
        noted.mkdir()
        (copy / "muster" / "_probe.py").write_text(_PROBE.format(folder=str(noted)), encoding="utf-8")
        for file in {mutant.patch.file for mutant in mutants}:
            path = copy / file
            functions = sorted({mutant.patch.function for mutant in mutants if mutant.patch.file == file})
            path.write_text(_probed(path.read_text(encoding="utf-8"), file, functions), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        arguments = [f"--junitxml={report}", *_LAYERS]
        outcome = subprocess.run([*command, *arguments], cwd=copy, env=environment, check=False)
        if not report.exists():
            raise ReachError
        print(f"pytest ended with {outcome.returncode}; a test that fails while it is watched is not tried.")
        seconds: dict[str, float] = defaultdict(float)
        failed = set()
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
            test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
            seconds[test] += float(case.attrib["time"])
            if any(child.tag in {"failure", "error"} for child in case):
                failed.add(test)
        reached: dict[str, set[str]] = defaultdict(set)
        for file in noted.iterdir():
            for line in file.read_text(encoding="utf-8").splitlines():
                test, _, name = line.partition("\t")
                reached[name].add(test)
        return seconds, {name: tests - failed for name, tests in reached.items()}


def _probed(source: str, file: str, functions: Sequence[str]) -> str:
    """The source with a note at the beginning of each of these functions."""
    lines = source.splitlines()
    places = []
    for name in functions:
        body = function_in(source, name, file).body
        first = body[1] if len(body) > 1 and isinstance(body[0], ast.Expr) and _is_text(body[0].value) else body[0]
        places.append((first.lineno, first.col_offset, name))
    for line, column, name in sorted(places, reverse=True):
        note = f'__import__("muster._probe", fromlist=["enter"]).enter("{file}::{name}")'
        lines.insert(line - 1, f"{' ' * column}{note}")
    return "\n".join(lines) + "\n"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _all_killers(
    mutants: Sequence[Mutant], reached: Mapping[str, set[str]], seconds: Mapping[str, float], workers: int
) -> Iterator[tuple[Mutant, list[str]]]:
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(workers):
            copies.put(stack.enter_context(copied_tree()))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        stack.callback(pool.shutdown, cancel_futures=True)

        def killers(mutant: Mutant) -> list[str]:
            tests = reached.get(f"{mutant.patch.file}::{mutant.patch.function}", set())
            tried, spent = {mutant.test}, 0.0
            for test in sorted(tests - tried, key=lambda test: seconds.get(test, 0.0)):
                spent += seconds.get(test, 0.0)
                if spent <= _SECONDS_MAX:
                    tried.add(test)
            copy = copies.get()
            try:
                return _killers(copy, mutant, sorted(tried), 60 + 4 * sum(seconds.get(test, 0.0) for test in tried))
            finally:
                copies.put(copy)

        yield from zip(mutants, pool.map(killers, mutants), strict=True)


def _killers(copy: Path, mutant: Mutant, tests: Sequence[str], seconds_max: float) -> list[str]:
    """The tests that fail with the mutant. A test that does not end has failed, with all that come after it untried."""
    with patched(copy, mutant.patch), tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["--maxfail=0", "--tb=no", "--timeout=60", *tests]
        code, output = run_tests(copy, options, seconds_max=seconds_max, report=report)
        if not report.exists():
            # It hung beyond pytest's own time-out, or a module cannot be imported: the mutant's own test says which.
            code, output = run_tests(copy, [mutant.test], seconds_max=120, report=report)
            return [mutant.test] if code else []
        failed = set()
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
            if any(child.tag in {"failure", "error"} for child in case):
                failed.add(f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}")
        assert failed or not code, output
        return sorted(failed)


def _tried(tree: str) -> dict[str, list[str]]:
    if not _STATE.exists():
        return {}
    rows = [json.loads(line) for line in _STATE.read_text(encoding="utf-8").splitlines()]
    return {row["mutant"]: row["killers"] for row in rows if row["tree"] == tree}


def _note(tree: str, mutant: str, killers: list[str]) -> None:
    _STATE.parent.mkdir(parents=True, exist_ok=True)
    with _STATE.open("a", encoding="utf-8") as file:
        print(json.dumps({"tree": tree, "mutant": mutant, "killers": killers}), file=file)
