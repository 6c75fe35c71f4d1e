"""What the watch of the replicas has found, as a client shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.client.cli.status_table import status_lines
from muster.client.runs.event_log import EventKind
from muster.client.runs.live_page import PageSource
from muster.client.runs.observer import Observer
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import changes
from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit, Member
from muster.contract.run.finding import FINDINGS_READ_MAX, Finding, FindingDocument
from muster.contract.spec.watch_rules import Rule
from tests.memory.harness import RUN, ControlHarness
from tests.support.memory_client import client_of

COMMITS = RunLayout(RUN).commits
TEXT = "process 3 of 4 has made no step for 612 s"
WORDS = f"watch.hang: replica 0 attempt 1, after round 1: {TEXT} (report)"


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        harness.plan()
        yield harness


def put(harness: ControlHarness, name: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=COMMITS + name, Body=body)


def finding(run: str = RUN) -> bytes:
    found = Finding(rule=Rule.HANG, then="report", rank=0, attempt=1, round=1, text=TEXT)
    return FindingDocument(run=run, finding=found).to_json()


def commit(round_: int) -> bytes:
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
    return Commit(run=RUN, round=round_, committed_at="", count=1, members=(member,), epochs=(1,)).to_json()


def look(harness: ControlHarness) -> RunStatus:
    return Observer(client_of(harness.cloud), RUN).look()


def test_a_finding_is_in_status_changes_table_page_and_events(harness: ControlHarness) -> None:
    put(harness, "00000001.json", commit(1))
    before = look(harness)
    put(harness, "finding-hang-00000-000001-01.json", finding())
    status = look(harness)
    assert [found.words for found in status.findings] == [WORDS]
    assert (before.findings, status.round) == ((), 1)
    assert list(changes(before, status)) == [WORDS]
    assert WORDS in [line.text for line in status_lines(status, 400, None)]
    page = PageSource(client_of(harness.cloud), RUN).look()
    assert [(fact.label, fact.note) for fact in page.facts if fact.label == "Watch"] == [("Watch", WORDS)]
    log = Observer(client_of(harness.cloud), RUN).event_log()
    (entry,) = [entry for entry in log if entry.kind is EventKind.RULE_MET]
    assert (entry.text, entry.rank, entry.attempt, entry.round) == (WORDS, 0, 1, 1)


def test_a_finding_is_read_once_and_costs_no_listing(harness: ControlHarness) -> None:
    put(harness, "finding-hang-00000-000001-01.json", finding())
    observer = Observer(client_of(harness.cloud), RUN)
    observer.look()
    harness.cloud.calls.reset()
    assert len(observer.look().findings) == 1
    assert harness.cloud.calls.counts()["ListObjectsV2"] == 2, "of the roll-up and of the commits"
    assert not [call for call in harness.cloud.calls.of("GetObject") if "finding" in call["Key"]]


BAD = {
    "no JSON": b"\xff",
    "of no rank": finding().replace(b'"rank":0', b'"rank":10000'),
    "too large": b" " * 5_000 + finding(),
    "a text with escapes": finding().replace(b"process", b"\\u001b[31m"),
    "of another run": finding(run="another"),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_what_is_no_finding_of_the_run_is_left_out(harness: ControlHarness, body: bytes) -> None:
    put(harness, "finding-hang-00000-000001-01.json", body)
    put(harness, "finding-hang-00000-000001-02.json", finding())
    put(harness, "finding-.json", finding())
    assert [found.words for found in look(harness).findings] == [WORDS]
    (entry,) = [
        entry for entry in Observer(client_of(harness.cloud), RUN).event_log() if entry.kind is EventKind.RULE_MET
    ]
    assert entry.text == WORDS


def test_a_replica_that_floods_the_bucket_fills_no_memory(harness: ControlHarness) -> None:
    for number in range(FINDINGS_READ_MAX + 5):
        put(harness, f"finding-hang-00000-{number:06d}-01.json", finding())
    assert len(look(harness).findings) == FINDINGS_READ_MAX


def test_a_rule_of_another_version_is_shown_with_its_text(harness: ControlHarness) -> None:
    put(harness, "finding-heat-00000-000001-01.json", finding().replace(b'"hang"', b'"heat"'))
    (found,) = look(harness).findings
    assert found.rule is None
    assert found.words.startswith("a rule of another version of Muster: replica 0 attempt 1")
