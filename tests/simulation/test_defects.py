"""The exploration finds defects: one of them here, all of them with `python -m tests.simulation defects`."""

import ast
import json

from tests.simulation.defects import DEFECTS, hunted
from tests.support.source_patch import ROOT

SAMPLE = "a re-arm does not store its token"
"""A defect that a dozen schedules find."""


def test_every_defect_can_be_put_in() -> None:
    """It changes the file, and what comes of it is still a program."""
    for defect in DEFECTS.values():
        read = ast_of if defect.file.endswith(".py") else json.loads
        assert read(defect.applied()) != read((ROOT / defect.file).read_text(encoding="utf-8")), defect.name


def ast_of(source: str) -> str:
    return ast.dump(ast.parse(source))


def test_a_defect_is_found() -> None:
    assert hunted(SAMPLE, 100) is not None
