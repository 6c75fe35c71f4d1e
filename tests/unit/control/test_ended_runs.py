"""What the control plane leaves of a run for lists of runs: an entry among those of its day."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.run.ended_run import REASON_MAX, EndedRun, EndedRuns, FailureCount, key_of_day
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.timestamps import Timestamp
from muster.control.ended_runs import ended_run, enter_ended_run
from muster.control.finish import finish_run
from muster.control.sweep import SweepRequest, sweep
from tests.memory import AwsError, Call, Fault
from tests.memory.harness import RUN, ControlHarness, budget

BROKEN = "AlgorithmError: ExitCode 1"
_AT = Timestamp("2026-11-22T09:00:00.000Z")


def entered(harness: ControlHarness) -> list[EndedRun]:
    """The entries of all days."""
    found = []
    for key in harness.cloud.s3.objects(harness.cloud.bucket):
        if key.startswith("ended/"):
            stored = harness.plane.store.get(key)
            assert stored is not None
            found += EndedRuns.from_json(stored.body, key).runs
    return found


def finish(harness: ControlHarness, run: str = RUN) -> Any:
    return finish_run(harness.plane, harness.plane.runs.require(run), budget())


def test_a_run_that_has_ended_is_entered_with_what_a_list_shows(harness: ControlHarness) -> None:
    harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1, reruns={"user-code": {"max_reruns": 1}})
    for rank in range(2):
        harness.arm(rank)
        harness.cloud.training.train(harness.job(rank))
        harness.deliver()
    harness.cloud.clock.advance(3_600)
    harness.cloud.training.fail(harness.job(0), BROKEN)
    harness.deliver()
    harness.arm(0, attempt=2)
    harness.cloud.training.fail(harness.job(0, attempt=2), BROKEN)
    harness.cloud.training.complete(harness.job(1))
    harness.deliver()
    finish(harness)
    [ended] = entered(harness)
    plan = harness.plane.runs.require(RUN).plan
    assert (ended.run, ended.execution_arn, ended.started_at) == (RUN, plan.execution_arn, plan.created_at)
    assert (ended.verdict, ended.reason) == (Verdict.SUCCEEDED, "1 of 2 replicas succeeded")
    assert (ended.replicas, ended.reruns, ended.failures) == (
        2,
        1,
        (FailureCount(failure_class="user-code", attempts=2, reruns=1),),
    )
    result = harness.result()
    assert result is not None
    assert ended.usd == result.usd == pytest.approx(2 * 0.115, rel=0.05), "two instances for an hour"


def test_the_end_is_entered_once_however_often_it_is_completed(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    finish(harness)
    finish(harness)
    assert len(entered(harness)) == 1
    written = [call for call in harness.cloud.calls.of("PutObject") if str(call["Key"]).startswith("ended/")]
    assert len(written) == 1


def test_runs_that_end_on_one_day_share_its_object_and_a_lost_race_loses_none(harness: ControlHarness) -> None:
    """While the first run is entered, the second one writes the object."""
    for name in ("one", "two"):
        harness.plan(name)
        harness.arm(run=name)
        harness.cloud.training.complete(harness.job(run=name))
        harness.deliver()
    finish(harness, "two")
    [two] = entered(harness)
    raced = Fault(
        "PutObject",
        AwsError("PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 412),
        when=_is_of_a_day,
        count=2,
    )
    harness.cloud.calls.inject(raced)
    assert finish(harness, "one").left == ()
    assert {one.run for one in entered(harness)} == {"one", "two"}
    assert two in entered(harness)


def _is_of_a_day(call: Call) -> bool:
    return str(call.parameters.get("Key", "")).startswith("ended/")


def test_a_run_that_could_not_be_entered_is_entered_by_the_sweep(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()
    denied = Fault("PutObject", AwsError("AccessDenied", "denied", 403), when=_is_of_a_day, count=1)
    harness.cloud.calls.inject(denied)
    finished = finish(harness)
    [left] = finished.left
    assert left.startswith("list it among the runs that have ended: ")
    assert (entered(harness), run.documents.is_finished()) == ([], False)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    sweep(harness.plane, harness.executions, SweepRequest(), budget())
    assert [one.run for one in entered(harness)] == [RUN]
    assert run.documents.is_finished()


def test_a_continuation_and_its_parent_name_each_other(harness: ControlHarness) -> None:
    harness.plan(rerun={"on": ["failed"], "max": 3})
    harness.arm()
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()
    finished = finish(harness)
    [ended] = entered(harness)
    assert ended.verdict is Verdict.FAILED
    assert ended.continued_by == finished.continued_by == "one-x2"


def test_an_entry_stays_small_whatever_a_replica_wrote(harness: ControlHarness) -> None:
    run = harness.plan()
    result = Result(
        run=RUN,
        verdict=Verdict.FAILED,
        reason="x" * 100_000,
        settled_at=run.plan.created_at,
        replicas=(ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED),),
        reruns=0,
    )
    ended = ended_run(run.plan, result, None)
    assert len(ended.reason) == REASON_MAX
    assert ended.usd is None, "an older version has not written what the replica cost"
    enter_ended_run(run, result, None)
    assert [one.reason for one in entered(harness)] == [ended.reason]


def test_a_day_is_that_of_the_start_in_utc() -> None:
    assert key_of_day(_AT) == "ended/2026-11-22.json"
