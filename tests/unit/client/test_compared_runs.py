"""`muster compare` reads both runs, and says what keeps it from that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.client.errors import SameRunError, UnknownRunError
from muster.client.runs.compared_runs import compare_runs
from tests.memory.harness import ControlHarness
from tests.support.memory_client import client_of


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def test_two_runs_are_read_and_compared(harness: ControlHarness) -> None:
    harness.plan("one", kwargs={"rate": 0.1})
    harness.plan("two", kwargs={"rate": 0.2}, rerun={"on": ["failed"], "max": 1})
    found = compare_runs(client_of(harness.cloud), "one", "two")
    assert (found.a.run, found.b.run, found.a.state) == ("one", "two", "running")
    assert ("kwargs.rate", 0.1, 0.2) in [(one.field, one.a, one.b) for one in found.spec]
    assert "rerun.max" in [one.field for one in found.spec]
    assert "one and two have committed no round" in found.remarks
    assert not found.comparable


def test_a_run_is_not_compared_with_itself(harness: ControlHarness) -> None:
    with pytest.raises(SameRunError, match="one cannot be compared with itself: name two runs"):
        compare_runs(client_of(harness.cloud), "one", "one")


def test_a_run_that_does_not_exist_is_named(harness: ControlHarness) -> None:
    harness.plan("one")
    with pytest.raises(UnknownRunError, match="absent"):
        compare_runs(client_of(harness.cloud), "one", "absent")
