"""Take each piece of code out that a mutant names, and show that its test fails.

Exit code 1 when a mutant survives or no longer fits the source.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.mutants.fault_table import fault_rows
from tests.mutants.matrix import write_matrix
from tests.mutants.table import mutants
from tests.mutants.trial import Verdict, try_all
from tests.mutants.unchanged import UnchangedTestsFailError, seconds_max, seconds_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants that contain a word, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="try those whose name, file or test contains it")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--matrix", action="store_true", help="write which unit and fault tests kill each, for hours")
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in mutants() if options.word in f"{mutant.name} {mutant.patch.file} {mutant.test}"]
    if not chosen:
        parser.error(f"no mutant has {options.word!r} in its name, file or test")
    if options.matrix:
        if options.word:
            parser.error("--matrix tries all mutants")
        return 1 if write_matrix(chosen, options.workers) else 0
    started = time.monotonic()
    try:
        seconds = seconds_of(sorted({mutant.test for mutant in chosen}))
    except UnchangedTestsFailError as error:
        print(error)
        print("The tests fail without any mutant.", file=sys.stderr)
        return 1
    counts: Counter[Verdict] = Counter()
    for trial in try_all(chosen, options.workers, lambda mutant: seconds_max(seconds[mutant.test])):
        counts[trial.verdict] += 1
        print(f"{trial.verdict:<9} {trial.seconds:5.1f} s  {trial.mutant.name}", flush=True)
        if trial.verdict is not Verdict.KILLED:
            print(f"  {trial.mutant.patch.file}: {trial.mutant.patch.function}\n  {trial.mutant.test}\n{trial.output}")
    killed, took = counts[Verdict.KILLED], time.monotonic() - started
    print(f"{len(fault_rows())} faults, {len(chosen)} mutants tried, {killed} killed in {took:.0f} s")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
