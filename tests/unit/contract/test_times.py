"""Times of a run: how they are written, its pace and its end, and what its replicas spend them on."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from muster.contract import timestamps
from muster.contract.run.time_use import Activity, RoundTimes, TimeUse, seconds_of, spent_on, time_use
from muster.contract.run.training_pace import Pace, TimedRound, end_of, has_stalled, pace_of
from tests.support.round_commits import commit_of, member

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds


# --- in documents -------------------------------------------------------------------------------------


@given(TIMES, TIMES)
def test_what_is_written_is_read_again_and_sorts(one: datetime, other: datetime) -> None:
    assert abs(timestamps.parse(timestamps.text(one)) - one) < timedelta(milliseconds=1)
    if one - other >= timedelta(milliseconds=1):
        assert timestamps.text(other) < timestamps.text(one)


def test_a_time_is_written_in_utc_with_milliseconds() -> None:
    east = datetime(2026, 11, 21, 11, 45, 0, 1_999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamps.text(east) == "2026-11-21T09:45:00.001Z"
    assert timestamps.from_epoch_milliseconds(0) == "1970-01-01T00:00:00.000Z"
    assert timestamps.seconds_between("2026-11-21T09:45:00.500Z", "2026-11-21T11:46:00+02:00") == 59.5
    with pytest.raises(ValueError, match="soon"):
        timestamps.parse("soon")


# --- the pace, from when rounds were committed and what counted in them ---------------------------------


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


def test_the_first_round_has_no_pace_because_it_began_with_the_launch() -> None:
    assert pace_of([], 2) is None
    assert pace_of(rounds((60, {0: 100.0})), 2) is None
    found = pace((100, {0: 999.0, 1: 999.0}), (110, {0: 300.0, 1: 100.0}))
    assert (found.rounds, found.round_seconds, found.samples_per_second, found.by_rank) == (1, 10.0, 40.0, (30.0, 10.0))
    # Fractions of seconds count.
    found = pace((10.25, {0: 1.0}), (10.5, {0: 1.0}), (10.75, {0: 1.0}), replicas=1)
    assert (found.round_seconds, found.samples_per_second) == (0.25, 4.0)


def test_a_replica_has_the_rate_of_the_rounds_that_it_took_part_in() -> None:
    both, alone = {0: 100.0, 1: 100.0}, {0: 100.0}
    found = pace((0, both), (10, both), (20, alone), (30, alone), (40, both))
    assert found.by_rank == (10.0, 10.0)
    # The run itself lost what the replica missed.
    assert found.samples_per_second == 15.0
    assert pace((0, {0: 1.0, 1: 1.0}), (10, {0: 10.0})).by_rank == (1.0, None)


def test_each_sample_counts_once_although_every_fragment_carries_it() -> None:
    found = pace((0, {0: 100.0}), (5, {0: 100.0}), (10, {0: 100.0}), replicas=1, fragments=2)
    assert found.samples_per_second == 10.0


def test_the_pause_between_a_run_and_its_continuation_is_no_round() -> None:
    night, weights = 36_000, {0: 100.0}
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
    assert pace((10, weights), (5, weights), (15, weights)).by_rank == (0.2, None)
    assert end_of(steady(), timestamps.Timestamp("soon"), 3, START) is None
    assert end_of(steady(9e9, 2), at(0), 90_000_000, START) is None


def steady(seconds: float = 10.0, count: int = 5) -> Pace:
    return pace(*((index * seconds, {0: 100.0}) for index in range(count)), replicas=1)


def end(after: float, left: int | None, found: Pace | None = None) -> float | None:
    """When the run ends in seconds after its latest commit, asked so many seconds after it."""
    found_end = end_of(found or steady(), at(1_000), left, START + timedelta(seconds=1_000 + after))
    return None if found_end is None else (found_end - START).total_seconds() - 1_000


def test_the_end_is_as_many_rounds_away_as_are_expected() -> None:
    # Within a round the end stays the same, and an overdue round moves it.
    assert [end(after, 6) for after in (0, 7, 14)] == [60.0, 60.0, 64.0]
    # One long round hardly does.
    slow = pace(*((second, {0: 100.0}) for second in (0, 10, 20, 30, 2_430, 2_440)), replicas=1)
    assert end(0, 6, slow) == 60.0
    assert [end(0, left) for left in (None, 0, -3)] == [None] * 3


def test_a_stalled_run_has_no_end() -> None:
    # Three rounds are over, but one request can take a minute.
    for found, seconds in ((steady(), 60), (steady(3_600), 3 * 3_600)):
        assert not has_stalled(found, seconds)
        assert has_stalled(found, seconds + 1)
    assert end(61, 6) is None


# --- what it is spent on, added up from round to round --------------------------------------------------


def test_a_contribution_says_milliseconds_in_the_order_of_the_activities() -> None:
    spent = spent_on({Activity.TRAINING: 1.2344, Activity.EXCHANGING: 0.05})
    assert spent == (1234, 0, 50)
    assert seconds_of(spent) == {Activity.TRAINING: 1.234, Activity.WAITING: 0.0, Activity.EXCHANGING: 0.05}
    # One of a later version has more activities.
    assert set(seconds_of((1, 2, 3, 4, 5, 6, 7))) == set(Activity)


def test_what_a_contribution_says_is_bounded(subtests: pytest.Subtests) -> None:
    assert spent_on({Activity.TRAINING: -3.0, Activity.SAVING: 1e300}) == (0, 0, 0, 10**11)
    for wrong in ([-1], [10**11 + 1], [0.5], list(range(17)), ["1"]):
        with subtests.test(time=wrong), pytest.raises(ValidationError):
            member(0, time=tuple(wrong))
    with pytest.raises(ValidationError):
        member(0, logged=(0,) * 33)
    for text in ('{"rounds": %s}', '{"rounds": 1, "last": [%s]}'):
        with subtests.test(text=text), pytest.raises(ValidationError):
            TimeUse.model_validate_json(text.replace("%s", "9" * 4_000))
    full = TimeUse(rounds=1, spent=(10**16,), held_up=(10**16,))
    more = time_use(full, RoundTimes([(5, 5)], waited_for=0, waited_before=0))
    assert (more.spent, more.held_up) == ((10**16, 5), (10**16,))


def test_waiting_counts_for_the_one_for_whom_the_round_before_waited() -> None:
    first = time_use(None, RoundTimes([(1000,), (4000, 0, 10)], waited_for=1, waited_before=None))
    assert first == TimeUse(rounds=1, spent=(5000, 0, 10), last=(0, 1), held_up=())
    # In round 2, replica 0 says that it waited three seconds for the commit of round 1, which came with replica 1.
    second = time_use(first, RoundTimes([(1000, 3000), (4000, 0, 10)], waited_for=3, waited_before=1))
    assert second == TimeUse(rounds=2, spent=(10_000, 3000, 20), last=(0, 1, 0, 1), held_up=(0, 3000))


def test_a_round_waits_for_one_that_gave_nothing_or_else_for_the_last_one() -> None:
    commit = commit_of([0], last=0)
    for changes, waited_for in (({}, 0), ({"absent": (2, 3)}, 2), ({"last": None}, None)):
        assert commit.model_copy(update=changes).waited_for == waited_for
