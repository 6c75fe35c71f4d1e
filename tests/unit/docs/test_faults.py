"""The table of faults in docs/failures.md names tests that exist, and that mutants have shown to fail."""

from __future__ import annotations

import ast

from tests.mutants.fault_table import NO_CODE, fault_rows, named_tests
from tests.mutants.table import mutants
from tests.support.source_patch import ROOT


def test_every_fault_names_a_test_that_exists() -> None:
    for row in fault_rows():
        named = named_tests(row)
        assert named, f"no test in: {row}"
        for test in named:
            file, function = test.split("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, row


def test_every_fault_has_a_mutant_or_says_that_it_needs_no_code() -> None:
    killing = {mutant.test for mutant in mutants()}
    for row in fault_rows():
        assert any(test in killing for test in named_tests(row)) is (NO_CODE not in row), row
