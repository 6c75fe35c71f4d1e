"""Reading, following and showing a run's log: nothing is lost, nothing comes twice, and no line steers a terminal."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import typer
from typer.testing import CliRunner

from muster.client.cli import watch_commands
from muster.client.cli.json_answers import Started
from muster.client.cli.log_text import printer, text_of
from muster.client.cli.option_groups import StackOptions, read_time
from muster.client.cli.output import print_answer
from muster.client.cli.watch_commands import read_ranks
from muster.client.client_errors import BusyError, OptionError
from muster.client.logs.log_lines import LogEvent, LogLine, LogQuery, read_regex
from muster.client.logs.log_reader import LogReader
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from tests.memory import throttle
from tests.memory.clock import VirtualClock
from tests.memory.cloud import MemoryCloud
from tests.support.memory_client import client_of, muster_of, put

RUN = "written"
QUERY = LogQuery("muster", RUN)
SPEC = {"name": RUN, "replicas": 1, "trainer": "package.module:train"}


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> MemoryCloud:
    """An AWS some hours ago by the client's own clock, in which the client's pauses pass at once."""
    cloud = MemoryCloud(clock=VirtualClock(datetime.now(UTC) - timedelta(hours=3)))
    monkeypatch.setattr("muster.client.logs.log_reader.time", cloud.clock)
    monkeypatch.setattr("muster.client.aws.log_events.time", cloud.clock)
    return cloud


def write(cloud: MemoryCloud, rank: int, *lines: str, attempt: int = 1) -> None:
    cloud.logs.write(str(JobName("muster", RUN, rank, attempt)), *lines)


def reader(cloud: MemoryCloud, query: LogQuery = QUERY) -> LogReader:
    return LogReader(client_of(cloud), query)


def test_a_rerun_and_a_replica_that_starts_late_are_followed_through_an_outage(cloud: MemoryCloud) -> None:
    outage = throttle("FilterLogEvents", count=5)

    def in_the_outage() -> None:
        cloud.calls.inject(outage)
        write(cloud, 0, "in the outage", "in the outage")
        write(cloud, 1, "a late process")
        write(cloud, 0, "another attempt", attempt=2)

    # What happens before each look at the log; then the run has ended.
    steps: list[Callable[[], object]] = [
        lambda: write(cloud, 0, "first"),
        in_the_outage,
        *[lambda: None] * 6,
        lambda: write(cloud, 1, "the last one"),
    ]

    def over() -> bool:
        if steps:
            steps.pop(0)()
        return not steps

    followed = [f"{line.rank}.{line.attempt} {line.message}" for line in reader(cloud).follow_lines(over)]
    assert sorted(followed) == [
        *("0.1 first", "0.1 in the outage", "0.1 in the outage", "0.2 another attempt"),
        *("1.1 a late process", "1.1 the last one"),
    ]
    assert outage.fired == 5


def test_who_does_not_follow_is_told_that_the_service_is_busy(cloud: MemoryCloud) -> None:
    cloud.calls.inject(throttle("FilterLogEvents"))
    with pytest.raises(BusyError, match="FilterLogEvents: ThrottlingException"):
        list(reader(cloud).read_lines())


def test_the_last_lines_are_read_without_those_before(cloud: MemoryCloud) -> None:
    ages = (90_000, 4_000, 70, 61, 60, 59, 1)  # seconds: some of them at the edges of what is read at once
    for age, following in zip(ages, (*ages[1:], 0), strict=True):
        write(cloud, age % 2, f"{age} s ago")
        cloud.clock.advance(age - following)
    now = cloud.clock.now()
    query = replace(QUERY, since=now - timedelta(days=2))
    for count in range(1, 9):
        found = [line.message for line in reader(cloud, query).last_lines(count, now)]
        assert found == [f"{age} s ago" for age in ages[-count:]], count
    cloud.calls.reset()
    assert len(reader(cloud).last_lines(1, now)) == 1
    assert cloud.calls.counts()["FilterLogEvents"] == 1


def test_a_follower_may_begin_with_the_last_lines_and_end_in_the_past(cloud: MemoryCloud) -> None:
    run = muster_of(cloud).launch(SPEC)
    began = cloud.clock.now()
    for age in (40, 30, 20):
        write(cloud, 0, f"{age} s ago")
        cloud.clock.advance(10)
    assert [line.message for line in run.logs(tail=2)] == ["30 s ago", "20 s ago"]
    early = began + timedelta(seconds=15)
    assert [line.message for line in run.logs(tail=1, until=early)] == ["30 s ago"]
    until_early = reader(cloud, replace(QUERY, until=early)).follow_lines(lambda: False)
    assert [line.message for line in until_early] == ["40 s ago", "30 s ago"]
    run.cancel()
    assert [line.message for line in run.logs(tail=2, follow=True)] == ["30 s ago", "20 s ago"]


def test_a_run_that_wrote_nothing_has_no_lines(cloud: MemoryCloud) -> None:
    assert list(reader(cloud).read_lines()) == []
    assert list(reader(cloud).follow_lines(lambda: True)) == []


def test_a_run_is_not_looked_for_before_its_beginning_nor_in_a_window_without_length(cloud: MemoryCloud) -> None:
    write(cloud, 0, "somebody else's")
    cloud.clock.advance(540)
    write(cloud, 0, "with a slow clock")
    cloud.clock.advance(60)
    run, now = muster_of(cloud).launch(SPEC), cloud.clock.now()
    write(cloud, 0, "own")
    assert [line.message for line in run.logs()] == ["with a slow clock", "own"]
    assert [line.message for line in run.logs(since=now.replace(microsecond=0))] == ["own"]
    cloud.calls.reset()
    for follow in (True, False):
        assert list(run.logs(until=now - timedelta(hours=1), follow=follow)) == []
        assert list(run.logs(since=now, until=now - timedelta(seconds=9), follow=follow)) == []
    assert cloud.calls.counts()["FilterLogEvents"] == 0


def test_several_readers_of_a_process_keep_to_the_rate_of_the_account(cloud: MemoryCloud) -> None:
    write(cloud, 0, "line")
    client = client_of(cloud)
    began = cloud.clock.monotonic()
    for _ in range(6):
        assert [line.message for line in LogReader(client, QUERY).read_lines()] == ["line"]
    assert cloud.clock.monotonic() - began == pytest.approx(5 / 5)


def event(number: int, at_ms: int, stream: str = "muster-digits-r0-a1/algo-1-7", message: str = "line") -> LogEvent:
    return LogEvent(f"id-{number}", at_ms, stream, message)


def test_lines_are_those_of_the_run_the_ranks_and_the_pattern_with_their_process() -> None:
    streams = ["digits-r0-a1", "digits-r1-a2", "digits-r2-r1-a1", "digits-r10-a1"]
    events = [event(number, 1_000, f"muster-{stream}/algo-1-7") for number, stream in enumerate(streams)]
    found = list(LogQuery("muster", "digits").lines([*events, event(9, 1_000, "foreign/algo-1-7")]))
    assert [(line.rank, line.attempt) for line in found] == [(0, 1), (1, 2), (10, 1)]
    # SageMaker's streams have a container behind the job; a replica could write others, which look like a job.
    forged = [event(1, 1, f"muster-digits-r0-a1{end}") for end in ("", "/", "/x", "/algo")]
    assert list(LogQuery("muster", "digits").lines(forged)) == []
    query = LogQuery("muster", "digits", ranks={1})
    assert (query.stream_prefix, [line.rank for line in query.lines(events)]) == ("muster-digits-r1-a", [1])
    texts = ["[7.3] loss=1", "[6.3] loss=2 of a trainer", "[7.3]no space", "[7.12] [7.1] loss=3"]
    events = [event(number, number, "muster-digits-r7-a1/algo-2-7", text) for number, text in enumerate(texts)]
    query = LogQuery("muster", "digits", regex=re.compile("loss=[0-9]+"))
    assert [(line.process, line.message) for line in query.lines(events)] == [
        *((3, "loss=1"), (None, "[6.3] loss=2 of a trainer"), (12, "[7.1] loss=3")),
    ]


def test_options_are_read_as_people_write_them() -> None:
    assert read_ranks("0,2,8-10") == {0, 2, 8, 9, 10}
    assert read_time("--since", "2026-11-21T09:30:00Z") == datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before <= read_time("--since", "10m") + timedelta(minutes=10) <= datetime.now(UTC)


def test_options_that_cannot_be_read_are_named() -> None:
    for ranks in ("a-b", "3-0", "99999", "0,10000"):
        with pytest.raises(OptionError, match=f"--rank: found '{ranks}'"):
            read_ranks(ranks)
    for option, time in (("--since", "999999d"), ("--until", "soon")):
        with pytest.raises(OptionError, match=f"{option}: found '{time}'"):
            read_time(option, time)
    with pytest.raises(OptionError, match=r"--regex: found '\('"):
        read_regex("(", "--regex")


CLEAR = "\x1b[2J"
TITLE = "\x1b]0;owned\x07"


def test_a_line_cannot_steer_the_terminal() -> None:
    for coloured in (True, False):
        shown = text_of(f"a{CLEAR}b{TITLE}\x9b1A\x7f\u202e\tü€😀", coloured=coloured)
        assert shown == r"a\x1b[2Jb\x1b]0;owned\x07\x9b1A\x7f\x202e" + "\tü€😀"


def test_a_lines_own_colours_stay_where_there_are_colours_and_end_with_it() -> None:
    line = "\x1b[31mred\x1b[0m and \x1b[1;32mgreen"
    assert text_of(line, coloured=True) == f"{line}\x1b[0m"
    assert text_of(line, coloured=False) == "red and green"


def line(message: str, attempt: int = 1, process: int | None = None) -> LogLine:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return LogLine(at=at, rank=3, process=process, attempt=attempt, job="job", message=message)


def test_every_part_of_an_event_has_its_rank_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    show = printer(as_json=False)
    long = "x" * 200_000
    for message in ("first\n   7 | forged", "10%\r20%\r\n", "", long):
        show(line(message, attempt=2))
    parts = ["first", "   7 | forged", "10%", "20%", "", long]
    assert capsys.readouterr().out.splitlines() == [f"3 a2 | {part}" for part in parts]
    for shown in (line("loss=1"), line("loss=1", process=5), line("loss=1", process=5, attempt=2)):
        show(shown)
    assert capsys.readouterr().out.splitlines() == ["   3 | loss=1", " 3.5 | loss=1", "3.5 a2 | loss=1"]


def test_json_holds_the_very_text_and_no_raw_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{CLEAR}\x9b1A\x7f\u2028\nü"
    print_answer(Started(run=text))
    out = capsys.readouterr().out
    assert json.loads(out) == {"run": text, "parent": None}
    assert all(character.isprintable() for character in out.rstrip("\n"))


def test_where_nothing_was_written_the_command_says_whether_the_program_has_started(
    cloud: MemoryCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a replica that is refused, of two whose programs were silent, and of one that waits."""

    def attempt(rank: int, status: str, cause: FailureClass | None, reason: str = "") -> Attempt:
        job, ended = str(JobName("muster", RUN, rank, 1)), timestamps.text(datetime.now(UTC)) if cause else None
        secondary = "Training" if cause is None else status
        given = {"status": status, "secondary": secondary, "failure_class": cause, "reason": reason, "ended_at": ended}
        return Attempt.model_validate({"attempt": 1, "job": job, **given})

    attempts = [
        attempt(0, "InProgress", None),
        attempt(1, "Failed", FailureClass.USER_CODE, "AlgorithmError: no data, exit code: 1"),
        attempt(2, "Failed", FailureClass.CAPACITY, "CapacityError: no ml.p5.48xlarge."),
    ]
    muster_of(cloud).launch({**SPEC, "replicas": 4})
    shard = RollUpShard(
        run=RUN, replicas=tuple(ReplicaEntry(rank=r, revision=1, attempts=(a,)) for r, a in enumerate(attempts))
    )
    put(cloud, RunLayout(RUN).roll_up_shard(0), shard.to_json())
    monkeypatch.setattr(StackOptions, "muster", lambda _: muster_of(cloud))
    app = typer.Typer()
    app.command()(watch_commands.logs)
    assert CliRunner().invoke(app, [RUN]).stderr.splitlines() == [
        "no log: replica 0 wrote nothing.",
        "no log: replica 1 wrote nothing: AlgorithmError: no data, exit code: 1.",
        "no log: replica 2 did not start yet: CapacityError: no ml.p5.48xlarge.",
        "no log: replica 3 did not start yet.",
    ]
    cloud.workflow.fail(RUN, "Muster.Failed")
    refused = "no log: replica 2 never started: CapacityError: no ml.p5.48xlarge.\n"
    assert CliRunner().invoke(app, [RUN, "--rank", "2"]).stderr == refused
    assert CliRunner().invoke(app, [RUN, "--regex", "x"]).stderr == ""
    write(cloud, 2, "hello")
    assert CliRunner().invoke(app, [RUN]).stderr == ""
