"""The exploration finds defects: some of them here, all of them with `python -m tests.simulation defects`."""

from __future__ import annotations

import pytest

from tests.simulation.defects import DEFECTS, hunted

SAMPLE = ("a call for a job that exists does not adopt it",)
"""Defects that a hundred schedules find."""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_can_be_put_in(defect: object) -> None:
    assert defect.applied() != (defect.old, defect.new)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_defect_is_found(name: str) -> None:
    found = hunted(name, 200)
    assert found.invariant is not None
