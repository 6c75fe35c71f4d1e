"""A bounded part of `make explore`, and what makes its findings worth anything: replays and shrinking."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.exploration import Explored, explore_in_parallel
from tests.simulation.shrinking import explored, minimized
from tests.simulation.transitions import TRANSITIONS

SCHEDULES = 3_000


@pytest.mark.timeout(600)
def test_no_schedule_breaks_an_invariant() -> None:
    total = Explored()
    for part in explore_in_parallel(range(SCHEDULES), workers=2):
        total.add(part)
    assert not total.found, f"python -m tests.simulation replay SEED --shrink: {total.found}"
    assert total.schedules == SCHEDULES
    assert [name for name in TRANSITIONS if not total.reached[name]] == []


def test_a_seed_gives_the_same_schedule_in_every_process() -> None:
    here = "\n".join(explored(12, tracing=True).trace)
    command = [sys.executable, "-m", "tests.simulation", "replay", "12"]
    for hash_seed in ("1", "2"):
        found = subprocess.run(
            command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True, timeout=120
        )
        assert found.stdout.endswith(f"{here}\n")


def test_a_schedule_of_plain_choices_is_a_run_that_succeeds() -> None:
    world = explored(12, only=())
    assert world.violations == []
    assert world.draws.made == {}
    assert (world.reached["end: SUCCEEDED, succeeded"], world.reached["attempt: created"]) == (1, 2)


def test_a_violation_is_shrunk_to_the_choices_that_cause_it() -> None:
    names = [f"choice {number}" for number in range(40)]
    assert minimized(names, lambda only: {"choice 3", "choice 31"} <= set(only)) == ["choice 3", "choice 31"]
