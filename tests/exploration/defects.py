"""Defects that the exploration must find."""

from collections.abc import Iterable
from pathlib import Path

from tests.exploration.draws import run_seed
from tests.support.defects import Defect, read_defects

DEFECTS = {defect.name: defect for defect in read_defects(Path(__file__).with_suffix(".toml"))}


def find(defect: Defect, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first schedule that breaks an invariant because of `defect`, and the invariant."""
    with defect.put_back():
        for seed in seeds:
            if problems := run_seed(seed, defect.front_end)[1].problems:
                return seed, problems[0]
    return None
