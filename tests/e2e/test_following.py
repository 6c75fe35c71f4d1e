"""Following a run's log on the embedded cloud: nothing is lost and nothing comes twice, whatever happens meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import boto3
import pytest
from botocore.config import Config

from muster import Muster
from muster.client.aws import connection
from muster.client.aws.cloud import Cloud
from muster.client.errors import BusyError
from muster.client.logs.log_lines import LogLine, LogQuery
from muster.client.logs.log_reader import LogReader
from muster.contract.names import JobName
from muster.local.faults import CallError
from tests.support.client_stack import deploy
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, own_calls, turn_to

GROUP = "/aws/sagemaker/TrainingJobs"
THROTTLE = {"service": "logs", "operation": "FilterLogEvents", "code": "ThrottlingException", "status": 400}


class Writer:
    """Writes the lines of a run's replicas."""

    def __init__(self, workshop: Workshop) -> None:
        self.run = workshop.name("written")
        self.query = LogQuery("muster", self.run)
        self._logs = workshop.logs
        self._ignoring(self._logs.create_log_group, logGroupName=GROUP)

    def _ignoring(self, call: Callable[..., Any], **request: str) -> None:
        try:
            call(**request)
        except self._logs.exceptions.ResourceAlreadyExistsException:
            return

    def write(self, rank: int, *messages: str, attempt: int = 1, at: datetime | None = None) -> None:
        stream = f"{JobName('muster', self.run, rank, attempt)}/algo-1-1"
        self._ignoring(self._logs.create_log_stream, logGroupName=GROUP, logStreamName=stream)
        now = int((at or datetime.now(UTC)).timestamp() * 1000)
        for first in range(0, len(messages), 5_000):
            events = [{"timestamp": now, "message": message} for message in messages[first : first + 5_000]]
            self._logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


@pytest.fixture
def writer(workshop: Workshop) -> Writer:
    return Writer(workshop)


@pytest.fixture
def reader(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    turn_to(monkeypatch, workshop.cloud)
    monkeypatch.setattr("muster.client.logs.log_reader.POLL_SECONDS", 0.05)
    # What is beyond the patience of a call should not take a minute here.
    monkeypatch.setattr(connection, "_PATIENT", Config(retries={"mode": "standard", "total_max_attempts": 1}))
    return Cloud(deploy(workshop), boto3.Session())


class Following:
    """What a follower has seen so far; it goes on in a thread until `end`."""

    def __init__(self, lines: Callable[[Callable[[], bool]], Iterator[LogLine]]) -> None:
        self.seen: list[LogLine] = []
        self._over = False
        self._trouble: list[Exception] = []
        self._thread = Thread(target=self._follow, args=(lines,), daemon=True)
        self._thread.start()

    def _follow(self, lines: Callable[[Callable[[], bool]], Iterator[LogLine]]) -> None:
        try:
            for line in lines(lambda: self._over):
                self.seen.append(line)
        except Exception as error:
            self._trouble.append(error)

    def until(self, count: int) -> None:
        wait_until("the lines", lambda: len(self.seen) >= count or self._trouble, seconds=120)
        assert len(self.seen) >= count, self._trouble

    def end(self) -> list[str]:
        self._over = True
        self._thread.join(timeout=120)
        assert (self._thread.is_alive(), self._trouble) == (False, [])
        return [f"{line.rank}.{line.attempt} {line.message}" for line in self.seen]


def test_a_rerun_and_a_replica_that_starts_late_are_followed_through_an_outage(
    reader: Cloud, writer: Writer, faults: Any
) -> None:
    following = Following(lambda over: LogReader(reader, writer.query).follow_lines(over))
    writer.write(0, "first")
    following.until(1)
    placed = faults.add(CallError(**THROTTLE, count=5))
    writer.write(0, "in the outage", "in the outage")
    writer.write(1, "a late process")
    writer.write(0, "another attempt", attempt=2)
    following.until(5)
    writer.write(1, "the last one")
    assert sorted(following.end()) == [
        "0.1 first",
        "0.1 in the outage",
        "0.1 in the outage",
        "0.2 another attempt",
        "1.1 a late process",
        "1.1 the last one",
    ]
    assert placed.fired == 5


def test_who_does_not_follow_is_told_that_the_service_is_busy(reader: Cloud, writer: Writer, faults: Any) -> None:
    faults.add(CallError(**THROTTLE))
    with pytest.raises(
        BusyError, match=r"^AWS throttled the call or is unavailable: FilterLogEvents: ThrottlingException"
    ):
        list(LogReader(reader, writer.query).read_lines())


def test_equal_times_beyond_a_page_are_read_once_each(reader: Cloud, writer: Writer) -> None:
    first, second = (datetime.now(UTC) - timedelta(seconds=age) for age in (2, 1))
    for rank in range(3):
        numbered = [f"line {rank}-{number}" for number in range(4_500)]
        writer.write(rank, *numbered[:2_500], at=first)
        writer.write(rank, *numbered[2_500:], at=second)
    lines = [line.message for line in LogReader(reader, writer.query).read_lines()]
    assert len(lines) == len(set(lines)) == 13_500
    for rank in range(3):
        own = [line for line in lines if line.startswith(f"line {rank}-")]
        assert own == [f"line {rank}-{number}" for number in range(4_500)]


def test_the_last_lines_are_read_without_those_before(reader: Cloud, writer: Writer, workshop: Workshop) -> None:
    now = datetime.now(UTC)
    ages = (90_000, 4_000, 70, 61, 60, 59, 1)  # seconds: some of them at the edges of what is read at once
    for age in ages:
        writer.write(age % 2, f"{age} s ago", f"{age} s ago, again", at=now - timedelta(seconds=age))
    everything = [f"{age} s ago{more}" for age in ages for more in ("", ", again")]
    for count in range(1, 16):
        query = replace(writer.query, since=now - timedelta(days=2))
        assert [line.message for line in LogReader(reader, query).last_lines(count, now)] == everything[-count:]
    since = replace(writer.query, since=now - timedelta(seconds=65))
    assert [line.message for line in LogReader(reader, since).last_lines(99, now)] == everything[6:]
    workshop.cloud.calls.reset()
    assert len(LogReader(reader, writer.query).last_lines(2, now)) == 2
    assert own_calls(workshop.cloud)["FilterLogEvents"] == 1


def test_a_follower_may_begin_with_the_last_lines(reader: Cloud, writer: Writer) -> None:
    run = Muster(reader.stack.name).launch({"name": writer.run, "replicas": 1, "trainer": "package.module:train"})
    now = datetime.now(UTC)
    for age in (40, 30, 20):
        writer.write(0, f"{age} s ago", at=now - timedelta(seconds=age))
    assert [line.message for line in run.logs(tail=2)] == ["30 s ago", "20 s ago"]
    assert [line.message for line in run.logs(tail=1, until=now - timedelta(seconds=25))] == ["30 s ago"]
    run.cancel()
    assert [line.message for line in run.logs(tail=2, follow=True, until=now)] == ["30 s ago", "20 s ago"]


def test_a_follower_with_an_end_in_the_past_reads_up_to_it_and_ends(reader: Cloud, writer: Writer) -> None:
    now = datetime.now(UTC)
    writer.write(0, "before", at=now - timedelta(seconds=20))
    writer.write(0, "after", at=now - timedelta(seconds=1))
    query = LogQuery("muster", writer.run, until=now - timedelta(seconds=10))
    assert [line.message for line in LogReader(reader, query).follow_lines(lambda: False)] == ["before"]


def test_a_run_that_wrote_nothing_has_no_lines(reader: Cloud, writer: Writer) -> None:
    nothing = LogQuery("muster", f"{writer.run}-other")
    assert list(LogReader(reader, nothing).read_lines()) == []
    assert list(LogReader(reader, nothing).follow_lines(lambda: True)) == []


def test_a_run_is_not_looked_for_before_its_beginning_nor_in_a_window_without_length(
    reader: Cloud, writer: Writer, workshop: Workshop
) -> None:
    run = Muster(reader.stack.name).launch({"name": writer.run, "replicas": 1, "trainer": "package.module:train"})
    now = datetime.now(UTC)
    writer.write(0, "somebody else's", at=now - timedelta(minutes=10))
    writer.write(0, "with a slow clock", at=now - timedelta(minutes=1))
    writer.write(0, "own", at=now)
    assert [line.message for line in run.logs()] == ["with a slow clock", "own"]
    assert [line.message for line in run.logs(since=now.replace(microsecond=0, tzinfo=UTC))] == ["own"]
    workshop.cloud.calls.reset()
    for follow in (True, False):
        assert list(run.logs(until=now - timedelta(hours=1), follow=follow)) == []
        assert list(run.logs(since=now, until=now - timedelta(seconds=9), follow=follow)) == []
    assert "FilterLogEvents" not in own_calls(workshop.cloud)


def test_several_readers_of_a_process_keep_to_the_rate_of_the_account(reader: Cloud, writer: Writer) -> None:
    writer.write(0, "line")
    began, seen = time.monotonic(), []
    threads = [Thread(target=lambda: seen.extend(LogReader(reader, writer.query).read_lines())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert (len(seen), time.monotonic() - began >= 5 / 5) == (6, True)
