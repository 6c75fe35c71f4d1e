"""The exploration finds defects: some of them here, all of them with `python -m tests.simulation defects`."""

from __future__ import annotations

import pytest

from tests.simulation.defects import DEFECTS, hunted

SAMPLE = (
    "react ends the current attempt with an event of another",
    "a lost replica leaves no mark",
    "the last fence counts, not the first",
    "a re-arm does not store its token",
)
"""Defects that a few hundred schedules find."""


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_can_be_put_in(defect: object) -> None:
    assert defect.applied() != (defect.old, defect.new)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_defect_is_found(name: str) -> None:
    found = hunted(name, 1_000)
    assert found.invariant is not None
