"""What replicas write into the rendezvous: findings are shown, reading is bounded, and what is none is left out."""

import json

import pytest

from muster.client.cli.status_table import status_lines
from muster.client.runs.event_log import EventKind
from muster.client.runs.live_page import PageSource
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import changes
from muster.contract.layout import RunLayout
from muster.contract.run.commit import commit_bytes_max
from muster.contract.run.finding import FINDINGS_READ_MAX, Finding, FindingDocument, findings_of
from muster.contract.spec.watch_rules import Rule
from muster.control.settle import finish_run
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support import memory_client
from tests.support.memory_client import client_of
from tests.support.round_commits import commit_of, member

COMMITS = RunLayout(RUN).commits
OWN = findings_of(RUN)
TEXT = "process 3 of 4 has made no step for 612 s"
WORDS = f"watch.hang: replica 0 attempt 1, after round 1: {TEXT} (report)"


@pytest.fixture(autouse=True)
def planned(harness: ControlHarness) -> None:
    harness.plan()


def commit(round_: int) -> bytes:
    return commit_of([member(0, metrics={"loss": 1.0})], run=RUN, round=round_).to_json()


def put(harness: ControlHarness, name: str, body: bytes) -> None:
    memory_client.put(harness.cloud, COMMITS + name, body)


def look(harness: ControlHarness) -> RunStatus:
    return Observer(client_of(harness.cloud), RUN).look()


NO_COMMITS = {
    "empty": b"",
    "no JSON": b"\xff",
    "no commit": b"[1]",
    "of another round": commit(9),
    "a metric that is no number": commit(2).replace(b"1.0}", b"NaN}"),
    "a new form": b'{"version": 7}',
    "nested": b"[" * 60_000,
    "too large": b" " * (commit_bytes_max(1) + 1) + commit(2),
}


def test_the_newest_commit_that_can_be_read_is_shown_and_the_other_is_named(harness: ControlHarness) -> None:
    place = "s3://bucket/rendezvous/one/commits/00000002"
    for name, body in NO_COMMITS.items():
        put(harness, "00000001.json", commit(1))
        put(harness, "00000002.json", body)
        status = look(harness)
        assert (status.round, status.state) == (1, RunState.RUNNING), name
        [remark] = status.remarks
        assert remark.startswith(f"1 commit cannot be read and is left out: {place}"), name
        assert (len(remark) < 500, "\n" in remark, remark in changes(None, status)) == (True, False, True), name
        assert status_lines(status, 600, None)[-1].text == remark, name
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
    assert [remark.split(" ")[:3] for remark in status.remarks] == [
        ["1", "commit", "cannot"],
        ["What", "the", "manifest"],
    ]
    source = PageSource(client_of(harness.cloud), RUN)
    for _ in range(2):
        page = source.look()
        assert (page.rounds.numbers, page.rounds.unread) == ((1,), 1)
    assert "1 commit could not be read and is left out." in page.verdict


# --- findings ---------------------------------------------------------------------------------------


def finding(run: str = RUN) -> bytes:
    found = Finding(rule=Rule.HANG, then="report", rank=0, attempt=1, round=1, text=TEXT)
    return FindingDocument(run=run, finding=found).to_json()


def test_a_finding_is_in_status_changes_table_page_and_events(harness: ControlHarness) -> None:
    put(harness, "00000001.json", commit(1))
    before = look(harness)
    put(harness, f"{OWN}hang-00000-000001-01.json", finding())
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


NO_FINDINGS = {
    "no JSON": b"\xff",
    "of no rank": finding().replace(b'"rank":0', b'"rank":10000'),
    "too large": b" " * 5_000 + finding(),
    "a text with escapes": finding().replace(b"process", b"\\u001b[31m"),
    "of another run": finding(run="another"),
}


def test_what_is_no_finding_of_the_run_is_left_out(harness: ControlHarness) -> None:
    put(harness, f"{OWN}hang-00000-000001-02.json", finding())
    put(harness, "finding-.json", finding())
    for name, body in NO_FINDINGS.items():
        put(harness, f"{OWN}hang-00000-000001-01.json", body)
        assert [found.words for found in look(harness).findings] == [WORDS], name
        log = Observer(client_of(harness.cloud), RUN).event_log()
        assert [entry.text for entry in log if entry.kind is EventKind.RULE_MET] == [WORDS], name
    # A rule of another version is one.
    put(harness, f"{OWN}heat-00000-000001-01.json", finding().replace(b'"hang"', b'"heat"'))
    (other,) = [found for found in look(harness).findings if found.rule is None]
    assert other.words.startswith("a rule of another version of Muster: replica 0 attempt 1")


def test_a_replica_that_floods_the_bucket_fills_no_memory(harness: ControlHarness) -> None:
    for number in range(FINDINGS_READ_MAX + 5):
        put(harness, f"{OWN}hang-00000-{number:06d}-01.json", finding())
    assert len(look(harness).findings) == FINDINGS_READ_MAX


def test_many_findings_of_runs_before_hide_none_of_a_continuation(harness: ControlHarness) -> None:
    for number in range(FINDINGS_READ_MAX):
        key = f"{findings_of('one-before')}hang-00000-{number:06d}-0000-01.json"
        put(harness, key, finding(run="one-before"))
    put(harness, f"{OWN}slow-00000-000001-0000-01.json", finding())
    assert [found.words for found in look(harness).findings] == [WORDS]
    log = Observer(client_of(harness.cloud), RUN).event_log()
    assert [entry.text for entry in log if entry.kind is EventKind.RULE_MET] == [WORDS]


def test_replicas_that_contribute_the_same_values_are_named(harness: ControlHarness) -> None:
    same = [member(rank, checksum="0000000a") for rank in (0, 2, 3)]
    put(harness, "00000001.json", commit_of([same[0], member(1), *same[1:]], run=RUN).to_json())
    [remark] = look(harness).remarks
    assert remark.startswith("Replicas 0,2-3 contribute identical values")
    put(harness, "00000002.json", commit_of(range(4), run=RUN, round=2).to_json())
    assert look(harness).remarks == ()
