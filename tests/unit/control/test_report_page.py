from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from bench.sample_run import sample_run
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.commit import Commit, Member
from muster.contract.run.record import Record
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.active_run import ActiveRun
from muster.control.aws.job_logs import JobLogs
from muster.control.documents import RunDocuments
from muster.control.reporting.report_input import drawn_page
from muster.control.reporting.report_page import page_of, publish_page
from muster.control.runtime.parallel import PARALLEL
from muster.control.runtime.time_budget import TimeBudget
from tests.memory import Fault, throttle
from tests.memory.harness import ControlHarness
from tests.support.page_data import data_in

PLAN = sample_run(1, 1).plan
LAYOUT = PLAN.layout
RESULT = Result(
    run=PLAN.run,
    verdict=Verdict.SUCCEEDED,
    reason="1 of 1 replicas succeeded",
    settled_at="2026-05-04T03:10:00.000Z",
    replicas=(ReplicaResult(rank=0, outcome=ReplicaOutcome.SUCCEEDED),),
    reruns=0,
)


@pytest.fixture
def run(harness: ControlHarness) -> ActiveRun:
    store = harness.plane.store
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
    for number in range(1, 21):
        at = f"2026-05-04T03:01:{number:02}Z"
        commit = Commit(run=PLAN.run, round=number, committed_at=at, count=1, members=(member,), epochs=(1,))
        store.create(f"{LAYOUT.commits}{number:08d}.json", commit.to_json())
    return ActiveRun(PLAN, RunDocuments(store, PLAN.run), harness.plane.backends, JobLogs(harness.plane.clients))


def page(run: ActiveRun) -> str:
    stored = run.documents.store.get(LAYOUT.page)
    assert stored is not None
    return stored.body.decode()


def data(run: ActiveRun) -> dict[str, Any]:
    return data_in(page(run))


def rounds(run: ActiveRun) -> list[int]:
    return list(data(run).get("rounds", {}).get("numbers", []))


def test_a_page_is_written_once_as_html(harness: ControlHarness, run: ActiveRun) -> None:
    assert page_of(run) is None
    assert publish_page(run, RESULT, TimeBudget.of(60)) == page_of(run) == f"s3://bucket/{LAYOUT.page}"
    assert rounds(run) == list(range(1, 21))
    assert harness.cloud.s3.objects("bucket")[LAYOUT.page].content_type == "text/html; charset=utf-8"
    before = page(run)
    publish_page(run, RESULT.model_copy(update={"reason": "another"}), TimeBudget.of(60))
    assert page(run) == before


def test_out_of_time_a_page_goes_without_its_rounds(run: ActiveRun) -> None:
    assert publish_page(run, RESULT, TimeBudget.of(0)) == f"s3://bucket/{LAYOUT.page}"
    assert rounds(run) == []


def test_rounds_that_are_not_read_in_time_are_left_out(harness: ControlHarness, run: ActiveRun) -> None:
    slow = Fault("GetObject", delay_seconds=100, when=lambda call: call.parameters["Key"].startswith(LAYOUT.commits))
    harness.cloud.calls.inject(slow)
    assert publish_page(run, RESULT, TimeBudget.of(60)) is not None
    # Those that were asked for together with the slow one are shown.
    assert rounds(run) == list(range(1, PARALLEL + 1))


def test_a_page_that_cannot_be_written_is_an_error_and_can_be_written_later(
    harness: ControlHarness, run: ActiveRun
) -> None:
    harness.cloud.calls.inject(throttle("PutObject"))
    with pytest.raises(ClientError, match="SlowDown"):
        publish_page(run, RESULT, TimeBudget.of(60))
    assert page_of(run) is None
    assert publish_page(run, RESULT, TimeBudget.of(60)) == page_of(run)


def test_a_page_that_cannot_be_drawn_is_no_error(run: ActiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what replicas wrote: whatever that is, the run ends."""

    def undrawable(*_: object) -> bytes:
        raise ValueError

    monkeypatch.setattr("muster.control.reporting.report_input.render", undrawable)
    assert publish_page(run, RESULT, TimeBudget.of(60)) is None
    assert page_of(run) is None


def test_a_page_of_the_same_run_is_the_same_bytes(run: ActiveRun) -> None:
    first, second = (drawn_page(run, RESULT, TimeBudget.of(60)) for _ in range(2))
    assert first == second
    assert page_of(run) is None


def test_what_replicas_wrote_keeps_no_page_from_being_written(run: ActiveRun) -> None:
    """A commit that is damaged, one that is empty, one that is no commit, and a key that no round has."""
    store = run.documents.store
    for key in ("00000021.json", "00000022.json", "00000023.json", "hello.json"):
        store.create(f"{LAYOUT.commits}{key}", {"00000022.json": b"", "00000023.json": b"[1]"}.get(key, b"\xff"))
    assert publish_page(run, RESULT, TimeBudget.of(60)) is not None
    assert rounds(run) == list(range(1, 21))


def test_the_page_has_what_the_record_remembers_and_goes_without_a_damaged_one(run: ActiveRun) -> None:
    history = (Transition(at="2026-05-04T03:00:00.000Z", secondary="Downloading"),)
    attempt = Attempt(attempt=1, job="muster-sample-r0-a1", status="Completed", secondary="Completed")
    record = Record(
        run=PLAN.run, rank=0, token="t", armed_at="a", attempts=(attempt.model_copy(update={"history": history}),)
    )
    run.documents.update_record(0, lambda _: record)
    run.documents.store.create(LAYOUT.record(1), b"damaged")
    replicas = tuple(
        ReplicaResult(rank=rank, outcome=ReplicaOutcome.SUCCEEDED, attempts=(attempt,)) for rank in range(2)
    )
    publish_page(run, RESULT.model_copy(update={"replicas": replicas}), TimeBudget.of(60))
    shown = [replica["attempts"][0].get("history", []) for replica in data(run)["replicas"]]
    assert [[step["secondary"] for step in steps] for steps in shown] == [["Downloading"], []]


def test_the_page_shows_the_end_that_the_result_holds_and_the_record_does_not(run: ActiveRun) -> None:
    """The event of the job's end was lost, and settling looked at the job."""
    history = (Transition(at="2026-05-04T03:00:00.000Z", secondary="Training"),)
    seen = Attempt(attempt=1, job="muster-sample-r0-a1", status="InProgress", secondary="Training", history=history)
    run.documents.update_record(0, lambda _: Record(run=PLAN.run, rank=0, token="t", armed_at="a", attempts=(seen,)))
    ended = Attempt(attempt=1, job=seen.job, status="Stopped", secondary="Stopped", ended_at="2026-05-04T03:05:00.000Z")
    replica = ReplicaResult(rank=0, outcome=ReplicaOutcome.STOPPED, attempts=(ended,))
    publish_page(run, RESULT.model_copy(update={"replicas": (replica,)}), TimeBudget.of(60))
    [shown] = data(run)["replicas"][0]["attempts"]
    assert (shown["status"], shown["secondary"]) == ("Stopped", "Stopped")
    assert [step["secondary"] for step in shown["history"]] == ["Training"]
