"""A sample of the mutants: the test of each fails without the code. `python -m tests.mutants` tries them all."""

from __future__ import annotations

import hashlib

import pytest

from tests.mutants.table import Mutant, mutants
from tests.mutants.trial import Verdict, try_one
from tests.support.source_patch import ROOT, copied_tree

SAMPLE = 4


def rank(mutant: Mutant) -> str:
    """A place that changes with the file: a change to the code draws other mutants of it."""
    return hashlib.sha256(mutant.name.encode() + (ROOT / mutant.patch.file).read_bytes()).hexdigest()


def test_every_mutant_fits_the_source_and_has_a_name_of_its_own() -> None:
    for mutant in mutants():
        source = (ROOT / mutant.patch.file).read_text(encoding="utf-8")
        compile(mutant.patch.applied_to(source), mutant.patch.file, "exec")
    names = [mutant.name for mutant in mutants()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("mutant", sorted(mutants(), key=rank)[:SAMPLE], ids=lambda mutant: mutant.name)
def test_the_test_of_a_mutant_fails(mutant: Mutant) -> None:
    with copied_tree() as copy:
        trial = try_one(copy, mutant)
    assert trial.verdict is Verdict.KILLED, trial.output
