"""Times in documents have one spelling, which sorts as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract import timestamps

TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds


def test_a_time_is_written_in_utc_with_milliseconds() -> None:
    east = datetime(2026, 11, 21, 11, 45, 0, 1_999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamps.text(east) == "2026-11-21T09:45:00.001Z"
    assert timestamps.from_epoch_milliseconds(0) == "1970-01-01T00:00:00.000Z"


@given(TIMES, TIMES)
def test_what_is_written_is_read_again_and_sorts(one: datetime, other: datetime) -> None:
    assert abs(timestamps.parse(timestamps.text(one)) - one) < timedelta(milliseconds=1)
    if one - other >= timedelta(milliseconds=1):
        assert timestamps.text(other) < timestamps.text(one)


def test_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="soon"):
        timestamps.parse("soon")


def test_the_seconds_between_two_times_do_not_depend_on_their_spelling() -> None:
    assert timestamps.seconds_between("2026-11-21T09:45:00.500Z", "2026-11-21T11:46:00+02:00") == 59.5
    assert timestamps.seconds_between("2026-11-21T09:45:00Z", "2026-11-21T09:44:00Z") == -60
