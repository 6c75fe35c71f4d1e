"""The agent's log rules, with a clock of their own. The oracle compares them with the real agent's."""

from __future__ import annotations

from typing import Any

import pytest

from muster.local.hyperpod.agent.log_rules import LogState, Rule


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rule(clock: Clock, **more: Any) -> Rule:
    return Rule({"name": "steps", "logPattern": r"step (\d+)", **more}, clock)


def test_a_first_line_that_does_not_come_in_time_hangs() -> None:
    clock = Clock()
    watched = rule(clock, expectedStartCutOffInSeconds=10)
    assert watched.evaluate(None)[0] is LogState.WAITING
    clock.now += 11
    assert watched.evaluate("something else")[0] is LogState.HANGING


def test_a_next_line_that_does_not_come_in_time_hangs() -> None:
    clock = Clock()
    watched = rule(clock, expectedRecurringFrequencyInSeconds=5)
    assert watched.evaluate("step 1") == (LogState.HEALTHY, "step 1")
    clock.now += 6
    assert watched.evaluate("") == (LogState.HANGING, "step 1")


def test_a_pattern_is_matched_from_the_beginning_of_a_line() -> None:
    assert rule(Clock()).evaluate("[default0]:step 1")[0] is LogState.WAITING


@pytest.mark.parametrize(
    ("operator", "slow"), [("gt", [3]), ("lt", [1]), ("eq", [2]), ("gteq", [2, 3]), ("lteq", [1, 2])]
)
def test_a_metric_beyond_its_threshold_is_slow(operator: str, slow: list[int]) -> None:
    for value in (1, 2, 3):
        found = rule(Clock(), metricThreshold=2, operator=operator).evaluate(f"step {value}")[0]
        assert (found is LogState.SLOW) is (value in slow)


def test_slow_needs_as_many_points_in_a_row() -> None:
    watched = rule(Clock(), metricThreshold=2, operator="gt", metricEvaluationDataPoints=2)
    states = [watched.evaluate(f"step {value}")[0] for value in (5, 1, 5, 5)]
    assert states == [LogState.HEALTHY, LogState.HEALTHY, LogState.HEALTHY, LogState.SLOW]


def test_the_stop_pattern_ends_the_rule() -> None:
    clock = Clock()
    watched = rule(clock, expectedStartCutOffInSeconds=1, stopPattern="done")
    assert watched.evaluate("done")[0] is LogState.HEALTHY
    clock.now += 100
    assert watched.evaluate("")[0] is LogState.HEALTHY


def test_a_match_can_be_a_fault() -> None:
    assert rule(Clock(), faultOnMatch=True).evaluate("step 1")[0] is LogState.FAULTED


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid operator"):
        rule(Clock(), operator="above")
