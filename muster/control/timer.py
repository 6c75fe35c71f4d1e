"""A timer fires for the launch gate or the deadline of a run: check once, and stop the run if it missed the limit."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.ended_run import Verdict
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next, Record
from muster.contract.spec.run_limits import Timer
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.control_plane import ControlPlane
from muster.control.jobs import PlaceSilentError
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import RunRequest
from muster.control.runtime.parallel import in_another_order, in_parallel
from muster.control.seat_keeper import seat_keeper
from muster.control.stop import raise_fence_and_stop

# Secondary statuses of a job whose program runs or has run; before them the job may still wait for an instance.
_TRAINING = {"Training", "Uploading", "Completed"}
_SHARE_FOR_LOOKS = 0.5  # of the time budget; the rest is for stopping


class TimerRequest(RunRequest):
    """What the scheduler sends."""

    timer: Timer


class Fired(StrEnum):
    """The result of a timer."""

    OVER = "the run has ended or is being stopped"
    PASSED = "enough replicas are training"
    STOPPED = "the run is stopped"


def fire(plane: ControlPlane, run: ActiveRun | None, timer: Timer, budget: TimeBudget) -> Fired:
    """Stop the run if it missed the limit of `timer`. A retry completes a call that failed after it raised the fence.

    Raises:
        OutOfTimeError: some jobs were not asked to stop because the budget was spent; the fence stays.
        Exception: the first error of a replica, after all of them have been asked to stop; the fence stays.
    """
    if run is None or run.documents.result() is not None:
        return Fired.OVER
    cause = FenceCause(timer.value)
    fence = run.documents.fence()
    if fence is None:
        reason = _missed_gate(run, budget) if timer is Timer.LAUNCH_GATE else _missed_deadline(run)
        if reason is None:
            return Fired.PASSED
        fence = Fence(verdict=Verdict.FAILED, cause=cause, reason=reason, at=clock.now())
    elif fence.cause is not cause:
        return Fired.OVER
    raise_fence_and_stop(plane, run, fence, budget)
    return Fired.STOPPED


def _missed_deadline(run: ActiveRun) -> str:
    return f"deadline: the run had not ended {run.plan.spec.deadline_seconds:,} s after its launch"


def _missed_gate(run: ActiveRun, budget: TimeBudget) -> str | None:
    """Why the run missed its launch gate; None where enough replicas are training.

    The records say it of most. Jobs of the others are looked at, in any order, until the answer is certain: an event
    may have been lost. What there is no time to look at counts as its record says, and so does what a place hides
    that does not answer. No more replicas are required than are wanted by then.

    Raises:
        Exception: a look failed on which the answer depends.
    """
    gate = run.plan.spec.launch_gate
    if gate is None:
        return None
    seats = seat_keeper(run.plan.spec)
    wanted = run.plan.spec.replicas - (0 if seats is None else len(seats.parked(run)))
    required = min(gate.replicas, wanted)
    records = in_parallel(lambda replica: replica.record().record, run.replicas)
    training = sum(record is not None and _trains_by_record(record) for record in records)
    unsure = [
        (replica, record.current)
        for replica, record in zip(run.replicas, records, strict=True)
        if record is not None and record.decision is None and not _trains_by_record(record)
    ]
    looking = TimeBudget.of(budget.remaining * _SHARE_FOR_LOOKS)
    needed, spare = required - training, training + len(unsure) - required
    found: Counter[bool] = Counter()
    failed: list[Exception] = []

    def look(one: tuple[ActiveReplica, Attempt]) -> None:
        if found[True] < needed and found[False] <= spare and not looking.is_spent:
            try:
                found[_is_training(*one, looking)] += 1
            except PlaceSilentError:
                found[False] += 1
            except Exception as error:
                failed.append(error)

    in_parallel(look, in_another_order(unsure))
    training += found[True]
    if training >= required:
        return None
    if failed and found[False] <= spare:
        raise failed[0]
    within = f"{gate.within_seconds:,} s"
    return f"launch gate: only {training} of the required {required} replicas were seen training after {within}"


def _trains_by_record(record: Record) -> bool:
    if record.decision is not None:
        return record.decision.next is Next.DONE
    return record.current.secondary in _TRAINING


def _is_training(replica: ActiveReplica, current: Attempt, looking: TimeBudget) -> bool:
    """By the job itself, if it is the replica's."""
    job = replica.jobs_of(current).find(current.job, looking)
    if job is None or job.status not in {JobStatus.IN_PROGRESS, JobStatus.COMPLETED} or job.secondary not in _TRAINING:
        return False
    return replica.has_own(job, current)
