"""Runs the tests of mutants, each in a copy of the tree that has the mutant."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.forked import FAILED, PASSED, SECONDS_MAX, run_tests
from tests.mutants.table import Mutant
from tests.support.source_patch import PatchError, copied_tree, patched


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
    seconds: float
    output: str = ""


def try_all(chosen: Sequence[Mutant], workers: int, seconds_max: Callable[[Mutant], float]) -> Iterator[Trial]:
    """Try the mutants, in order, `workers` at a time."""
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(workers):
            copies.put(stack.enter_context(copied_tree()))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        stack.callback(pool.shutdown, cancel_futures=True)
        yield from pool.map(lambda mutant: _try_in(copies, mutant, seconds_max(mutant)), chosen)


def _try_in(copies: SimpleQueue[Path], mutant: Mutant, seconds_max: float) -> Trial:
    copy = copies.get()
    try:
        return try_one(copy, mutant, seconds_max)
    finally:
        copies.put(copy)


def try_one(copy: Path, mutant: Mutant, seconds_max: float = SECONDS_MAX) -> Trial:
    """Run the mutant's test in a copy of the tree: with the mutant it must fail, or take longer than it may."""
    started = time.monotonic()
    try:
        with patched(copy, mutant.patch):
            code, output = run_tests(copy, [mutant.test], seconds_max=seconds_max)
    except (PatchError, SyntaxError) as error:
        return Trial(mutant, Verdict.INVALID, 0, str(error))
    verdict = {PASSED: Verdict.SURVIVED, FAILED: Verdict.KILLED}.get(code, Verdict.INVALID)
    return Trial(mutant, verdict, time.monotonic() - started, output)
