"""The exploration finds defects: some of them here, all of them with `python -m tests.simulation defects`."""

from __future__ import annotations

import ast
import json

import pytest

from tests.simulation.defects import DEFECTS, ROOT, Defect, hunted

SAMPLE = ("a call for a job that exists does not adopt it",)
"""Defects that a hundred schedules find."""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_can_be_put_in(defect: Defect) -> None:
    """It changes the file, and what comes of it is still a program."""
    changed, before = defect.applied(), (ROOT / defect.file).read_text(encoding="utf-8")
    assert changed != before
    if not defect.file.endswith(".py"):
        assert json.loads(changed) != json.loads(before)
        return
    compile(changed, defect.file, "exec")
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(before))


def test_each_defect_is_another_one() -> None:
    assert len({defect.name for defect in DEFECTS}) == len({defect.applied() for defect in DEFECTS}) == len(DEFECTS)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_defect_is_found(name: str) -> None:
    found = hunted(name, 200)
    assert found.invariant is not None
