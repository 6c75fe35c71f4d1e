"""A bounded part of `make explore`, and what makes its findings worth anything: replays and shrinking."""

import subprocess
import sys

from tests.simulation.exploration import explore, explored
from tests.simulation.transitions import TRANSITIONS
from tests.support.exploring import minimized, tallied

FIRST, SCHEDULES = 3_500, 400
"""Of these all transitions are reached. `make test-release` runs 20,000."""


def test_no_schedule_breaks_an_invariant() -> None:
    total = tallied(explore, range(FIRST, FIRST + SCHEDULES), workers=2)
    assert not total.broken, f"python -m tests.simulation replay SEED --shrink: {total.broken}"
    assert total.schedules == SCHEDULES
    assert total.missing(TRANSITIONS) == []


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
    causes = ["choice 3", "choice 31"]
    assert minimized(names, lambda only: {*causes} <= {*only}, tries=100) == causes
    assert len(minimized(names, lambda only: {*causes} <= {*only}, tries=10)) < 40
