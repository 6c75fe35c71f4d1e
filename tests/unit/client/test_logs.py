"""The order of log lines, and which of them are asked for."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import pytest

from muster.client.cli.log_filter import read_ranks
from muster.client.cli.time_option import read_time
from muster.client.errors import OptionError
from muster.client.logs.log_lines import LogEvent, LogQuery, Merge, read_regex


def event(number: int, at_ms: int, stream: str = "muster-digits-r0-a1/algo-1-7", message: str = "line") -> LogEvent:
    return LogEvent(f"id-{number}", at_ms, stream, message)


def test_lines_that_are_read_again_and_again_come_once_and_none_is_missing() -> None:
    chance = random.Random(7)  # noqa: S311
    written = [event(number, at_ms=number * 10) for number in range(2_000)]
    # Up to 300 ms late, and every look reads the last second again.
    arrivals = sorted(written, key=lambda item: item.at_ms + chance.uniform(0, 300))
    merge, found, there = Merge(hold_ms=500), [], []
    for first in range(0, len(arrivals), 50):
        there += arrivals[first : first + 50]
        merge.add(item for item in there if item.at_ms >= (merge.newest_ms or 0) - 1_000)
        found += merge.release()
        merge.forget((merge.newest_ms or 0) - 1_000)
    found += merge.release(everything=True)
    assert found == written


def test_a_line_that_comes_too_late_for_its_place_comes_late() -> None:
    merge = Merge(hold_ms=100)
    merge.add([event(1, 1_000), event(2, 2_000)])
    assert [item.at_ms for item in merge.release()] == [1_000]
    assert merge.add([event(3, 500), event(2, 2_000)]) == 1
    assert [item.at_ms for item in merge.release(everything=True)] == [500, 2_000]
    assert merge.release(everything=True) == []


def test_lines_of_other_runs_and_other_ranks_are_left_out() -> None:
    streams = ["digits-r0-a1", "digits-r1-a2", "digits-r2-r1-a1", "digits-r10-a1"]
    events = [event(number, 1_000, f"muster-{stream}/algo-1-7") for number, stream in enumerate(streams)]
    found = list(LogQuery("muster", "digits").lines([*events, event(9, 1_000, "foreign/algo-1-7")]))
    assert [(line.rank, line.attempt, line.job) for line in found] == [
        (0, 1, "muster-digits-r0-a1"),
        (1, 2, "muster-digits-r1-a2"),
        (10, 1, "muster-digits-r10-a1"),
    ]
    query = LogQuery("muster", "digits", ranks={1})
    assert query.stream_prefix == "muster-digits-r1-a"
    assert [line.rank for line in query.lines(events)] == [1]


def test_the_process_in_front_of_a_line_is_a_field_of_it() -> None:
    texts = ["[7.3] loss=1", "[6.3] said by a trainer", "[7.3]no space", "plain", "[7.12] [7.1] twice"]
    events = [event(number, number, "muster-digits-r7-a1/algo-2-7", text) for number, text in enumerate(texts)]
    found = [(line.process, line.message) for line in LogQuery("muster", "digits").lines(events)]
    assert found == [
        (3, "loss=1"),
        (None, "[6.3] said by a trainer"),
        (None, "[7.3]no space"),
        (None, "plain"),
        (12, "[7.1] twice"),
    ]


def test_a_pattern_is_searched_in_the_line() -> None:
    query = LogQuery("muster", "digits", regex=re.compile("loss=[0-9.]+"))
    events = [event(1, 0, message="round 1 loss=0.5\n"), event(2, 0, message="loss unknown")]
    assert [line.message for line in query.lines(events)] == ["round 1 loss=0.5"]


def test_options_are_read_as_people_write_them() -> None:
    assert read_ranks("0,2,8-10") == {0, 2, 8, 9, 10}
    assert read_time("--since", "2026-11-21T09:30:00Z") == datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before <= read_time("--since", "10m") + timedelta(minutes=10) <= datetime.now(UTC)


def test_options_that_cannot_be_read_are_named() -> None:
    for ranks in ("a-b", "3-0", "99999", "0,10000"):
        with pytest.raises(OptionError, match=f"--rank: found '{ranks}'; write ranks like"):
            read_ranks(ranks)
    with pytest.raises(OptionError, match="--since: found '999999d'; write an age like"):
        read_time("--since", "999999d")
    with pytest.raises(OptionError, match="--until: found 'soon'; write an age like"):
        read_time("--until", "soon")
    with pytest.raises(OptionError, match=r"--regex: found '\('; not a valid regular expression"):
        read_regex("(", "--regex")
