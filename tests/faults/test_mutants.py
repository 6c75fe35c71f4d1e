"""A sample of the mutants: the test of each fails without the code. `python -m tests.mutants` tries them all."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.table import Mutant, mutants
from tests.mutants.trial import Verdict, try_one
from tests.support.source_patch import ROOT, Patch, copied_tree

SAMPLE = 4
SECONDS_MAX = 15.0
"""A test that takes longer with its mutant fails by that, too."""
QUICK = [mutant for mutant in mutants() if mutant.test.startswith("tests/unit/")]


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    with copied_tree() as tree:
        yield tree


def rank(mutant: Mutant) -> str:
    """A place that changes with the file: a change to the code draws other mutants of it."""
    return hashlib.sha256(mutant.name.encode() + (ROOT / mutant.patch.file).read_bytes()).hexdigest()


def test_every_mutant_fits_the_source_and_has_a_name_of_its_own() -> None:
    for mutant in sorted(mutants(), key=lambda mutant: mutant.patch.file):
        source = (ROOT / mutant.patch.file).read_text(encoding="utf-8")
        compile(mutant.patch.applied_to(source), mutant.patch.file, "exec")
    names = [mutant.name for mutant in mutants()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("mutant", sorted(QUICK, key=rank)[:SAMPLE], ids=lambda mutant: mutant.name)
def test_the_test_of_a_mutant_fails(copy: Path, mutant: Mutant) -> None:
    trial = try_one(copy, mutant, SECONDS_MAX)
    assert trial.verdict is Verdict.KILLED, trial.output


def test_a_mutant_that_changes_nothing_survives_and_leaves_the_copy_as_it_was(copy: Path) -> None:
    patch = Patch("muster/contract/aws/ranged_reads.py", "first_bytes", "most - 1", "most - 2 + 1")
    source = (ROOT / patch.file).read_bytes()
    test = "tests/unit/control/aws/test_store.py::test_an_object_is_read_within_its_bound_or_refused_by_its_size"
    trial = try_one(copy, Mutant("nothing", test, patch))
    assert trial.verdict is Verdict.SURVIVED, trial.output
    assert (copy / patch.file).read_bytes() == source
