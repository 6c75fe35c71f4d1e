"""The page of a run is written once, with what can be read in time."""

from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.record import Record
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.active_run import ActiveRun
from muster.control.documents import RunDocuments
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import PARALLEL
from muster.control.settle import page_of, publish_page
from tests.memory import Fault
from tests.memory.harness import ControlHarness
from tests.support.control_steps import found
from tests.support.page_data import data_in
from tests.support.round_commits import commit

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
    for number in range(1, 21):
        store.create(f"{LAYOUT.commits}{number:08d}.json", commit(number, {0: {}}, second=number).to_json())
    return ActiveRun(PLAN, RunDocuments(store, PLAN.run), harness.plane.backends)


def published(run: ActiveRun, **fields: Any) -> str | None:
    """Where the page of the result, with these fields, is written within a minute."""
    return publish_page(run, RESULT.model_copy(update=fields), TimeBudget.of(60))


def data(run: ActiveRun) -> dict[str, Any]:
    return data_in(found(run.documents.store.get(LAYOUT.page)).body.decode())


def test_a_page_is_written_once_as_html_with_the_rounds_that_are_read_in_time(
    harness: ControlHarness, run: ActiveRun
) -> None:
    assert page_of(run) is None
    slow = Fault("GetObject", delay_seconds=100, when=lambda call: call.parameters["Key"].startswith(LAYOUT.commits))
    harness.cloud.calls.inject(slow)
    for reason in ("one-reason", "another-reason"):
        assert published(run, reason=reason) == page_of(run) == f"s3://bucket/{LAYOUT.page}"
        # Those that were asked for together with the slow one are shown.
        assert data(run)["rounds"]["numbers"] == list(range(1, PARALLEL + 1))
    page = harness.cloud.s3.objects("bucket")[LAYOUT.page]
    assert page.content_type == "text/html; charset=utf-8"
    assert b"another-reason" not in page.body


def test_a_page_that_cannot_be_drawn_is_no_error(run: ActiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what replicas wrote: whatever that is, the run ends."""

    def undrawable(*_: object) -> bytes:
        raise ValueError

    monkeypatch.setattr("muster.control.reporting.report_input.render", undrawable)
    assert published(run) is None
    assert page_of(run) is None


def test_the_page_joins_what_the_record_remembers_and_what_the_result_has_found(run: ActiveRun) -> None:
    """The event of the job's end was lost, and settling looked at the job. Another record is damaged."""
    history = (Transition(at="2026-05-04T03:00:00.000Z", secondary="Training"),)
    seen = Attempt(attempt=1, job="muster-sample-r0-a1", status="InProgress", secondary="Training", history=history)
    record = Record(run=PLAN.run, rank=0, token="t", armed_at="a", attempts=(seen,))
    run.documents.update_record(0, lambda _: record)
    run.documents.store.create(LAYOUT.record(1), b"damaged")
    ended = Attempt(attempt=1, job=seen.job, status="Stopped", secondary="Stopped", ended_at="2026-05-04T03:05:00.000Z")
    published(
        run,
        replicas=tuple(
            ReplicaResult(rank=rank, outcome=ReplicaOutcome.STOPPED, attempts=(ended,)) for rank in range(2)
        ),
    )
    attempts = [replica["attempts"][0] for replica in data(run)["replicas"]]
    assert [(one["status"], one["secondary"]) for one in attempts] == [("Stopped", "Stopped")] * 2
    assert [[step["secondary"] for step in one.get("history", [])] for one in attempts] == [["Training"], []]
