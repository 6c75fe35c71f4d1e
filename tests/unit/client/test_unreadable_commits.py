"""A run whose rendezvous holds what is no commit: a client shows the rest, and says what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from muster.client.cli.status_table import status_lines
from muster.client.runs.live_page import PageSource
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import changes
from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit, Member, commit_bytes_max
from muster.control.finish import finish_run
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.memory_client import client_of

COMMITS = RunLayout(RUN).commits


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        harness.plan()
        yield harness


def commit(round_: int) -> bytes:
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={"loss": 1.0})
    return Commit(run=RUN, round=round_, committed_at="", count=1, members=(member,), epochs=(1,)).to_json()


def put(harness: ControlHarness, name: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=COMMITS + name, Body=body)


def look(harness: ControlHarness) -> RunStatus:
    return Observer(client_of(harness.cloud), RUN).look()


BAD = {
    "empty": b"",
    "no JSON": b"\xff",
    "no commit": b"[1]",
    "of another round": commit(9),
    "a metric that is no number": commit(2).replace(b"1.0}", b"NaN}"),
    "a new form": b'{"version": 7}',
    "nested": b"[" * 60_000,
    "too large": b" " * (commit_bytes_max(1) + 1) + commit(2),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_the_newest_commit_that_can_be_read_is_shown_and_the_other_is_named(
    harness: ControlHarness, body: bytes
) -> None:
    put(harness, "00000001.json", commit(1))
    put(harness, "00000002.json", body)
    status = look(harness)
    assert (status.round, status.state) == (1, RunState.RUNNING)
    [remark] = status.remarks
    assert remark.startswith("1 commit cannot be read and is left out: s3://bucket/rendezvous/one/commits/00000002")
    assert len(remark) < 500
    assert "\n" not in remark
    assert remark in changes(None, status)
    json.loads(status.to_line(), parse_constant=pytest.fail)


def test_no_more_of_a_commit_is_transferred_than_its_bound(harness: ControlHarness) -> None:
    put(harness, "00000001.json", bytes(1_000_000))
    harness.cloud.calls.reset()
    look(harness)
    [asked] = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith(COMMITS)]
    assert asked["Range"] == f"bytes=0-{commit_bytes_max(0) - 1}"


def test_a_key_that_no_commit_has_is_no_commit(harness: ControlHarness) -> None:
    for name in ("no digits.json", "00000001.json.tmp", "1.json", "٠٠٠٠٠٠٠١.json", "zzz"):
        put(harness, name, b"")
    put(harness, "00000004.json", commit(4))
    observer = Observer(client_of(harness.cloud), RUN)
    assert (observer.look().round, observer.look().remarks) == (4, ())
    assert [entry.round for entry in observer.event_log() if entry.round] == [4]


def test_a_thousand_unreadable_commits_cost_a_few_calls_and_hide_no_later_round(harness: ControlHarness) -> None:
    put(harness, "00000001.json", commit(1))
    for number in range(1_000):
        put(harness, f"9{number:07}.json", b"")
    observer = Observer(client_of(harness.cloud), RUN)
    harness.cloud.calls.reset()
    assert observer.look().round == 1
    assert harness.cloud.calls.counts()["GetObject"] <= 10
    put(harness, "00000002.json", commit(2))
    status = observer.look()
    assert status.round == 2
    assert status.remarks[0].startswith("8 commits cannot be read and are left out, such as s3://bucket/")


def test_a_settled_run_is_shown_and_its_page_drawn(harness: ControlHarness) -> None:
    run = harness.plane.runs.require(RUN)
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    put(harness, "00000001.json", commit(1))
    put(harness, "00000002.json", b"")
    finish_run(harness.plane, run, budget())
    harness.cloud.workflow.succeed(RUN)
    status = look(harness)
    assert (status.state, status.round) == (RunState.SUCCEEDED, 1)
    # The manifest that is missing is told as well.
    assert len(status.remarks) == 2
    assert status.remarks[1].startswith("What the manifest of replica 0 says is not known")
    page = PageSource(client_of(harness.cloud), RUN).look()
    assert (page.rounds.numbers, page.rounds.unread) == ((1,), 1)
    assert "1 commit could not be read and is left out." in page.verdict


def test_a_live_page_tells_every_commit_that_it_leaves_out_once(harness: ControlHarness) -> None:
    source = PageSource(client_of(harness.cloud), RUN)
    for number in range(1, 5):
        put(harness, f"{number:08}.json", b"" if number == 2 else commit(number))
        page = source.look()
    assert (page.rounds.numbers, page.rounds.unread) == ((1, 3, 4), 1)
    put(harness, "00000006.json", commit(6))
    put(harness, "00000005.json", b"")
    assert source.look().rounds.unread == 2


def test_the_table_of_a_status_ends_with_what_is_left_out(harness: ControlHarness) -> None:
    put(harness, "00000001.json", b"")
    last = status_lines(look(harness), 200, None)[-1]
    assert last.text.startswith("1 commit cannot be read and is left out: s3://bucket/")
