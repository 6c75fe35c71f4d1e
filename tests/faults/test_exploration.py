"""The exploration itself: it repeats a seed, finds what is broken, and shows it in few lines."""

import ast
from collections.abc import Iterator

import pytest

from tests.exploration.defects import DEFECTS, find
from tests.exploration.draws import run_seed
from tests.exploration.simulated import simulated
from tests.support.source_patch import ROOT

# With the schedule that found them last; `python -m tests.exploration defects` puts all of them back.
SAMPLED = {
    "a lost commit race is not noticed": 7,
    "no member takes over a late shard": 33,
    "the mean adds this process's contribution first": 4,
    "a header damaged in transit excludes its sender": 4,
}


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def test_a_seed_is_the_same_schedule_every_time() -> None:
    for seed, front_end in ((3, "arrays"), (11, "groups")):
        first, second = run_seed(seed, front_end)[1], run_seed(seed, front_end)[1]
        assert (first.steps, first.seconds, first.seen) == (second.steps, second.seconds, second.seen)
        states, again = ([found.known.tobytes() for found in world.states.values()] for world in (first, second))
        assert states == again
        assert len(states) > 1


def test_defects_that_are_put_back_are_found() -> None:
    found = {name: find(DEFECTS[name], (seed, *range(100))) for name, seed in SAMPLED.items()}
    assert [name for name, schedule in found.items() if schedule is None] == []


def test_every_defect_still_fits_the_code() -> None:
    for name, defect in DEFECTS.items():
        text = (ROOT / defect.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(defect.applied())) != ast.dump(ast.parse(text)), name
