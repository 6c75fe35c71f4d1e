"""Runs the tests of mutants, each in a copy of the tree that has the mutant."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.table import Mutant
from tests.support.source_patch import PatchError, copied_tree, patched

_SECONDS_MAX = 300  # a mutant may make a test wait for ever
_PASSED, _FAILED = 0, 1  # pytest's exit codes; others mean that no test ran


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    INVALID = "invalid"


@dataclass(frozen=True)
class Trial:
    """One mutant, and what its test said."""

    mutant: Mutant
    verdict: Verdict
    output: str = ""


def try_all(chosen: Sequence[Mutant], workers: int) -> Iterator[Trial]:
    """Try the mutants, in order, `workers` at a time."""
    with ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        contexts = [copied_tree() for _ in range(workers)]
        for context in contexts:
            copies.put(context.__enter__())
        try:
            yield from pool.map(lambda mutant: _try_in(copies, mutant), chosen)
        finally:
            pool.shutdown(cancel_futures=True)
            for context in contexts:
                context.__exit__(None, None, None)


def _try_in(copies: SimpleQueue[Path], mutant: Mutant) -> Trial:
    copy = copies.get()
    try:
        return try_one(copy, mutant)
    finally:
        copies.put(copy)


def try_one(copy: Path, mutant: Mutant) -> Trial:
    """Run the mutant's test in a copy of the tree: with the mutant it must fail."""
    try:
        with patched(copy, mutant.patch):
            code, output = run_tests(copy, [mutant.test])
    except (PatchError, SyntaxError) as error:
        return Trial(mutant, Verdict.INVALID, str(error))
    verdict = {_PASSED: Verdict.SURVIVED, _FAILED: Verdict.KILLED}.get(code, Verdict.INVALID)
    return Trial(mutant, verdict, "" if verdict is Verdict.KILLED else output)


def run_tests(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy; pytest's exit code and what it printed. A test that hangs has failed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _FAILED, "timed out"
    return done.returncode, done.stdout + done.stderr
