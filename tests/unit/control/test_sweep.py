"""Sweep: what a lost event left behind is found by comparing what there is with what should be."""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.orphans import YOUNG_SECONDS
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.sweep import Swept
from tests.memory import AwsError, Call, Fault, throttle
from tests.memory.clock import SkewedClock
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import (
    QUORUM_LOST,
    FunctionEndedError,
    Row,
    create_late_job,
    cut_off,
    finished,
    found,
    launched,
    refuse,
    swept,
)

NOTHING = Swept((), (), (), ())
DENIED = AwsError("AccessDeniedException")


def launch_and_cut_off(harness: ControlHarness, run: str = RUN) -> None:
    """A run whose end nothing has learnt of, old enough for its job to be judged."""
    launched(harness, 1, run)
    cut_off(harness, run=run)
    harness.cloud.clock.advance(YOUNG_SECONDS)


def orphan(harness: ControlHarness, run: str = "gone", **fields: object) -> str:
    """A job of a run that has ended, created after the last look at it."""
    launched(harness, 1, run)
    harness.cloud.training.complete(harness.job(run=run))
    harness.deliver()
    finished(harness, run)
    harness.cloud.workflow.succeed(run)
    return create_late_job(harness, run, **fields)


def is_of(job: str, call: Call) -> bool:
    return bool(call.parameters.get("TrainingJobName") == job)


def note_fence(run: ActiveRun, fenced: list[bool]) -> None:
    fenced.append(run.is_stopping)


def reads(run: str) -> Callable[[Call], bool]:
    return lambda call: str(call.parameters.get("Key", "")).startswith(f"control/{run}/replicas/")


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_that_takes_long_to_stop_does_not_use_up_the_time_of_the_others(harness: ControlHarness) -> None:
    for name in ("slow", RUN):
        launched(harness, 1, name)
    harness.cloud.training.complete(harness.job())
    harness.cloud.training.stop_seconds = 3_600
    for name in ("slow", RUN):
        cut_off(harness, run=name)
    done = swept(harness, 200)
    assert (done.settled, [error.partition(":")[0] for error in done.errors]) == ((RUN,), ["slow"])


def test_one_run_whose_documents_are_denied_keeps_no_other(row: Row) -> None:
    for operation in ("GetObject", "PutObject"):
        with row(operation) as harness:
            for run in ("denied", RUN):
                launched(harness, 1, run)
                cut_off(harness, run=run)
            denied = refuse(harness, operation, float("inf"), AwsError("AccessDenied", "kms:Decrypt", 403))
            denied.when = lambda call: call.parameters["Key"].startswith("control/denied/")
            done = swept(ControlHarness(cloud=harness.cloud))
            assert done.settled == (RUN,)
            assert done.errors
            assert all(error.startswith("denied: ") for error in done.errors)
            harness.cloud.calls.faults.clear()
            assert swept(harness).settled == ("denied",)


# --- jobs -----------------------------------------------------------------------------------------


def test_one_job_that_cannot_be_stopped_keeps_no_other_and_a_foreign_one_is_reported(harness: ControlHarness) -> None:
    foreign, *names = (
        orphan(harness, run, **fields) for run, fields in (("a", {"Tags": []}), ("first", {}), ("second", {}))
    )
    harness.cloud.calls.inject(Fault("StopTrainingJob", DENIED, when=partial(is_of, names[0])))
    done = swept(harness, young_seconds=0)
    assert (done.stopped, done.foreign) == ((names[1],), (foreign,))
    assert [trouble.partition(":")[0] for trouble in done.errors] == [names[0]]
    assert swept(harness, young_seconds=0).stopped == (names[0],)
    assert foreign in harness.cloud.training.names("InProgress")


def test_an_orphan_that_cannot_be_stopped_leaves_time_to_complete_a_run(harness: ControlHarness) -> None:
    job = orphan(harness)
    launched(harness)
    harness.cloud.training.complete(harness.job())
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    harness.cloud.calls.inject(throttle("StopTrainingJob", None, partial(is_of, job)))
    done = swept(harness)
    assert (done.settled, [error.partition(":")[0] for error in done.errors]) == ((RUN,), [job])


def test_orphans_for_which_the_time_is_too_short_are_named(harness: ControlHarness) -> None:
    names = {orphan(harness, f"gone-{number}") for number in range(30)}
    harness.cloud.calls.inject(Fault("StopTrainingJob", delay_seconds=10, count=None))
    done = swept(harness, 100, young_seconds=0)
    assert {*done.stopped, *done.left} == names
    assert done.left
    assert set(swept(harness, young_seconds=0).stopped) == set(done.left)


def test_a_listing_that_takes_too_long_leaves_time_for_the_newest_orphans_and_for_runs(harness: ControlHarness) -> None:
    """SageMaker keeps jobs for ever, and a page is filled with ended ones too."""
    launched(harness, 150, "old")
    for job in harness.cloud.training.names("InProgress"):
        harness.cloud.training.complete(job)
    harness.deliver()
    finished(harness, "old")
    harness.cloud.workflow.succeed("old")
    harness.cloud.clock.advance(1)
    job = orphan(harness)
    launch_and_cut_off(harness)
    harness.cloud.calls.inject(Fault("ListTrainingJobs", delay_seconds=400))
    done = swept(harness, 900)
    assert done.settled == (RUN,)
    assert job in done.stopped
    assert done.errors == ("SageMaker: the time was spent before all jobs were listed",)


def test_a_sweep_looks_for_no_job_that_is_older_than_any_can_live(harness: ControlHarness) -> None:
    launched(harness, 300, "old")
    for job in harness.cloud.training.names("InProgress"):
        harness.cloud.training.complete(job)
    harness.deliver()
    finished(harness, "old")
    harness.cloud.workflow.succeed("old")
    harness.cloud.clock.advance(60 * 86_400)
    harness.cloud.calls.reset()
    assert swept(harness) == NOTHING
    assert harness.cloud.calls.counts()["ListTrainingJobs"] == 1


def test_jobs_of_a_running_run_whose_fence_stands_are_stopped(harness: ControlHarness) -> None:
    """The function that raised the fence (a timer's, for instance) could not stop them, whatever Lambda tried."""
    run = launched(harness)
    launched(harness, 1, "healthy")
    run.documents.raise_fence(QUORUM_LOST.model_copy(update={"at": clock.now()}))
    harness.cloud.clock.advance(YOUNG_SECONDS)
    assert swept(harness) == Swept((), (harness.job(),), (), ())
    assert harness.cloud.training.names("InProgress") == ["muster-healthy-r0-a1"]


# --- what comes first, and what may fail ----------------------------------------------------------


def test_executions_are_listed_after_the_jobs_so_that_a_run_that_begins_is_no_suspect(harness: ControlHarness) -> None:
    swept(harness)
    operations = [call.operation for call in harness.cloud.calls.log if call.operation.startswith("List")]
    assert operations[:2] == ["ListTrainingJobs", "ListExecutions"]


def test_orphans_are_stopped_before_any_run_is_settled(harness: ControlHarness) -> None:
    name, settled = orphan(harness), []
    launch_and_cut_off(harness)
    look = Fault(
        "StopTrainingJob",
        when=partial(is_of, name),
        action=lambda: settled.append(harness.result() is not None),
    )
    harness.cloud.calls.inject(look)
    done = swept(harness)
    assert (set(done.stopped), done.settled) == ({name, harness.job()}, (RUN,))
    assert settled == [False]


def test_a_run_that_is_cancelled_during_a_sweep_has_no_job_stopped_without_its_fence(row: Row) -> None:
    """Otherwise the event of a job's end would say that a user has stopped it."""
    for listings in range(5):
        with row(f"after {listings} listings") as harness:
            run, fenced = launched(harness), list[bool]()
            harness.cloud.clock.advance(YOUNG_SECONDS)
            cancel = partial(cut_off, harness, "ABORTED")
            note = partial(note_fence, run, fenced)
            harness.cloud.calls.inject(
                Fault("List*", skip=listings, action=cancel), Fault("StopTrainingJob", count=None, action=note)
            )
            for _ in range(2):
                swept(harness)
                assert False not in fenced
            assert harness.cloud.training.names("Stopping", "Stopped") == [harness.job()]


def test_a_job_whose_run_cannot_be_fenced_is_left_to_the_next_call(row: Row) -> None:
    for name, operation, key in (
        ("the fence", "PutObject", "stopping.json"),
        ("the mark of its end", "GetObject", "finished.json"),
    ):
        with row(name) as harness:
            launch_and_cut_off(harness)
            denied = refuse(harness, operation, float("inf"), AwsError("AccessDenied", status=403))
            denied.when = lambda call, key=key: call.parameters["Key"].endswith(key)
            done = swept(harness)
            assert (done.stopped, done.left) == ((), (harness.job(),))
            assert harness.cloud.training.names("InProgress") == [harness.job()]
            harness.cloud.calls.faults.clear()
            assert swept(harness).stopped == (harness.job(),)
            harness.deliver()
            assert harness.plane.runs.require(RUN).documents.fence() is not None
            assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER


def test_a_run_that_ends_the_function_keeps_no_orphan_alive_and_no_other_run_unsettled(
    harness: ControlHarness,
) -> None:
    """Each sweep meets the same end, so the runs come in another order each time."""
    random.seed(0)
    name = orphan(harness)
    others = [f"other-{number}" for number in range(3)]
    for run in ("poisoned", *others):
        launched(harness, 1, run)
        cut_off(harness, run=run)
        harness.cloud.clock.advance(1)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    harness.cloud.training.stop_seconds = 1
    # The first read shows whose the job is.
    harness.cloud.calls.inject(Fault("GetObject", FunctionEndedError(), when=reads("poisoned"), count=None, skip=1))
    with pytest.raises(FunctionEndedError):
        swept(harness)
    assert name in harness.cloud.training.names("Stopped", "Stopping")
    assert harness.cloud.training.names("InProgress") == []
    for _ in range(20):
        with suppress(FunctionEndedError):
            swept(harness)
    results = [harness.result(run) for run in ("poisoned", *others)]
    assert [result is not None for result in results] == [False, True, True, True]


def test_a_step_that_fails_keeps_no_other_step_from_its_turn(row: Row) -> None:
    of_s3 = AwsError("AccessDenied", status=403)
    for name, fault, settled, is_stopped in (
        ("jobs", Fault("ListTrainingJobs", DENIED), (RUN,), False),
        ("running executions", Fault("ListExecutions", DENIED), (RUN,), False),
        ("ended executions", Fault("ListExecutions", DENIED, skip=1), (), True),
        ("a record", Fault("GetObject", of_s3, when=reads("gone")), (RUN,), True),
    ):
        with row(name) as harness:
            job = orphan(harness)
            launch_and_cut_off(harness)
            harness.cloud.calls.inject(fault)
            done = swept(harness)
            assert (fault.fired, done.settled) == (1, settled)
            assert (job in done.stopped) is (is_stopped and not done.errors[0].startswith(job))
            assert "AccessDenied" in done.errors[0]
            harness.cloud.calls.faults.clear()
            swept(harness)
            assert harness.cloud.training.names("InProgress") == []
            assert harness.result() is not None


def test_clocks_that_differ_by_minutes_change_nothing(harness: ControlHarness) -> None:
    """Of the function that planned the run, the one that stopped it and the one that sweeps."""
    with clock.replaced(SkewedClock(harness.cloud.clock, 120)):
        launched(harness)
        launched(harness, 1, "young")
    cut_off(harness)
    with clock.replaced(SkewedClock(harness.cloud.clock, -120)):
        assert swept(harness) == Swept((RUN,), (), (), ())
    assert (found(harness.result()).verdict, harness.emitted().count("Run Failed")) == (Verdict.FAILED, 1)
    # The listing of executions does not show yet to which one this job belongs.
    unlisted = orphan(harness, "unlisted")
    with clock.replaced(SkewedClock(harness.cloud.clock, 120)):
        assert swept(harness) == NOTHING
    assert harness.cloud.training.names("InProgress") == ["muster-young-r0-a1", unlisted]
