"""The pace of a run and its end, computed from when rounds were committed and what counted in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from muster.contract import timestamps
from muster.contract.run.pace import Pace, TimedRound, end_of, has_stalled, pace_of

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def at(seconds: float) -> timestamps.Timestamp:
    return timestamps.text(START + timedelta(seconds=seconds))


def rounds(*items: tuple[float, dict[int, float]], first: int = 1, fragments: int = 1) -> list[TimedRound]:
    """Rounds one after the other: when each was committed, and what counted in it."""
    return [TimedRound(first + index, at(second), weights, fragments) for index, (second, weights) in enumerate(items)]


def pace(*items: tuple[float, dict[int, float]], replicas: int = 2, **options: int) -> Pace:
    began_after = options.pop("began_after", 0)
    found = pace_of(rounds(*items, **options), replicas, began_after)
    assert found is not None
    return found


def test_one_round_alone_has_no_pace_because_it_began_with_the_launch() -> None:
    assert pace_of([], 2) is None
    assert pace_of(rounds((60, {0: 100.0})), 2) is None


def test_two_rounds_give_the_pace_of_the_second() -> None:
    found = pace((100, {0: 999.0, 1: 999.0}), (110, {0: 300.0, 1: 100.0}))
    assert (found.rounds, found.round_seconds, found.samples_per_second) == (1, 10.0, 40.0)
    assert found.by_rank == (30.0, 10.0)


def test_fractions_of_seconds_count() -> None:
    found = pace((10.25, {0: 1.0}), (10.5, {0: 1.0}), (10.75, {0: 1.0}), replicas=1)
    assert (found.round_seconds, found.samples_per_second) == (0.25, 4.0)


def test_a_replica_that_is_rerun_has_the_rate_of_the_rounds_that_it_took_part_in() -> None:
    both, alone = {0: 100.0, 1: 100.0}, {0: 100.0}
    found = pace((0, both), (10, both), (20, alone), (30, alone), (40, both))
    assert found.by_rank == (10.0, 10.0)
    # The run itself lost what the replica missed.
    assert found.samples_per_second == 15.0


def test_unequal_replicas_have_unequal_rates() -> None:
    found = pace((0, {}), (10, {0: 400.0, 1: 100.0}), (20, {0: 400.0, 1: 100.0}))
    assert found.by_rank == (40.0, 10.0)
    assert found.samples_per_second == 50.0


def test_a_replica_in_none_of_the_rounds_has_no_rate() -> None:
    assert pace((0, {0: 1.0, 1: 1.0}), (10, {0: 10.0})).by_rank == (1.0, None)


def test_each_sample_counts_once_although_every_fragment_carries_it() -> None:
    found = pace((0, {0: 100.0}), (5, {0: 100.0}), (10, {0: 100.0}), replicas=1, fragments=2)
    assert found.samples_per_second == 10.0


def test_the_pause_between_a_run_and_its_continuation_is_no_round() -> None:
    night = 36_000
    weights = {0: 100.0}
    items = (0, weights), (10, weights), (night, weights), (night + 10, weights)
    found = pace(*items, replicas=1, began_after=2)
    assert (found.rounds, found.longest_seconds, found.samples_per_second) == (2, 10.0, 10.0)
    assert pace_of(rounds(*items[1:3], first=2), 1, 2) is None


def test_a_gap_between_the_rounds_is_left_out() -> None:
    known = [*rounds((0, {0: 1.0}), (10, {0: 50.0})), *rounds((90, {0: 1.0}), (95, {0: 50.0}), first=9)]
    found = pace_of(known, 1)
    assert found is not None
    assert (found.rounds, found.round_seconds) == (2, 7.5)


def test_what_replicas_write_cannot_break_it() -> None:
    weights = {0: 1.0, 7: 1.0}  # a rank that the run does not have
    wrong = [TimedRound(1, timestamps.Timestamp(""), weights), TimedRound(2, at(0), weights), TimedRound(3, at(0), {})]
    assert pace_of(wrong, 2) is None
    backwards = rounds((10, weights), (5, weights), (15, weights))
    found = pace_of(backwards, 2)
    assert found is not None
    assert found.by_rank == (0.2, None)


def steady(seconds: float = 10.0, count: int = 5) -> Pace:
    return pace(*((index * seconds, {0: 100.0}) for index in range(count)), replicas=1)


def end(after: float, left: int | None, found: Pace | None = None) -> float | None:
    """When the run ends in seconds after its latest commit, asked so many seconds after it."""
    found_end = end_of(found or steady(), at(1_000), left, START + timedelta(seconds=1_000 + after))
    return None if found_end is None else (found_end - START).total_seconds() - 1_000


def test_the_end_is_as_many_rounds_away_as_are_expected() -> None:
    assert end(0, 6) == 60.0
    # Within a round the end stays the same.
    assert end(7, 6) == 60.0


def test_an_overdue_round_moves_the_end() -> None:
    assert end(14, 6) == 64.0


def test_one_long_round_hardly_moves_the_end() -> None:
    slow = pace(*((second, {0: 100.0}) for second in (0, 10, 20, 30, 2_430, 2_440)), replicas=1)
    assert end(0, 6, slow) == 60.0


@pytest.mark.parametrize("left", [None, 0, -3])
def test_without_rounds_that_are_left_there_is_no_end(left: int | None) -> None:
    assert end(0, left) is None


def test_a_stalled_run_has_no_end() -> None:
    found = steady()
    assert not has_stalled(found, 60.0)  # three rounds are over, but one request can take a minute
    assert has_stalled(found, 61.0)
    assert end(61, 6) is None
    hours = steady(3_600)
    assert not has_stalled(hours, 3 * 3_600)
    assert has_stalled(hours, 3 * 3_600 + 1)


def test_a_time_that_is_none_gives_no_end() -> None:
    assert end_of(steady(), timestamps.Timestamp("soon"), 3, START) is None
    assert end_of(steady(9e9, 2), at(0), 90_000_000, START) is None
