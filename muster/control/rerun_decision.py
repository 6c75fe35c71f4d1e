"""What the end of an attempt means. Pure: the same record and the same facts give the same decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.document import digest
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.attempt import NOT_CREATED, Attempt, rule_of_end, shortages
from muster.contract.run.record import Decision, Next, Record
from muster.contract.spec.policies import OnReplicaFailure
from muster.contract.spec.retry_budget import JITTER, Budget
from muster.contract.spec.spec import Spec
from muster.contract.timestamps import Timestamp

_HOUR = timedelta(hours=1)
REASON_MAX = 1_024  # DescribeTrainingJob: FailureReason has at most 1,024 characters


Parks = Callable[[Spec, tuple[Attempt, ...], Timestamp], Decision | None]
"""What follows the last of the attempts, which failed, where no budget decides that."""


@dataclass(frozen=True)
class Facts:
    """The facts on which a decision depends, apart from the replica's record."""

    spec: Spec
    """The spec of the replica's rank."""
    stopping: bool
    """Whether the run's fence is raised."""
    ceiling: str | None
    """The reason against reruns, where the run's cost ceiling is reached; None where it is not."""
    now: Timestamp
    parks: Parks | None = None
    """Of a run whose replicas come and go."""
    closed: bool = False
    """Whether the replica's seat is not wanted any more."""


def decide_end(record: Record | None, ended: Attempt, facts: Facts) -> Record | None:
    """The record with the end of its current attempt and the decision that follows.

    None where nothing is written: `ended` is not the current attempt, or its decision is already recorded.
    """
    if record is None or record.current.attempt != ended.attempt or record.decision is not None:
        return None
    if not ended.was_created and record.current.has_proven_job:
        # Another call created the job, which was deleted before this one looked for it.
        ended = ended.model_copy(update={"secondary": "", "billable_seconds": None})
    current = record.current.merged(ended)
    if current.failure_class is not None and (facts.closed or record.leaves == current.attempt):
        current = current.model_copy(update={"failure_class": FailureClass.STOPPED_BY_MUSTER})
    attempts = (*record.attempts[:-1], current)
    decision = _of_seat(attempts, facts) or judge(record.rank, attempts, facts)
    if decision.parked:
        attempts = (*attempts[:-1], current.model_copy(update={"parked": True}))
    decision = decision.model_copy(update={"decided_at": facts.now})
    return record.model_copy(update={"attempts": attempts, "decision": decision})


def _of_seat(attempts: tuple[Attempt, ...], facts: Facts) -> Decision | None:
    """What follows for a replica that comes and goes, where no budget decides it."""
    current = attempts[-1]
    if facts.parks is None or facts.stopping or current.failure_class is None or current.attempt >= ATTEMPT_MAX:
        return None
    return facts.parks(facts.spec, attempts, facts.now)


def give_up(record: Record, attempt: int, reason: str, facts: Facts, *, has_job: bool) -> Record | None:
    """The record of a replica whose attempt could neither be launched nor checked: the replica is lost.

    `has_job`: SageMaker has a job of the attempt. None where nothing is written: the attempt has ended, or it is not
    the current one.
    """
    current, decided = record.current, record.decision
    was_armed = current.attempt == attempt and decided is None
    was_due = decided is not None and decided.next is Next.RERUN and decided.attempt == attempt
    if not was_armed and not was_due:
        return None
    if was_armed:
        has_job = has_job or current.has_proven_job
        ended = {
            "ended_at": facts.now,
            "status": (JobStatus.STOPPED if has_job else JobStatus.FAILED).value,
            "secondary": current.secondary if has_job else NOT_CREATED,
            "failure_class": FailureClass.STOPPED_BY_MUSTER if facts.stopping else FailureClass.UNKNOWN,
            "reason": reason,
        }
        current = current.model_copy(update=ended)
    why = "the run is stopping" if facts.stopping else reason
    decision = Decision(next=Next.FAIL, attempt=attempt, lost=not facts.stopping, decided_at=facts.now, reason=why)
    return record.model_copy(update={"attempts": (*record.attempts[:-1], current), "decision": decision})


def judge(rank: int, attempts: tuple[Attempt, ...], facts: Facts) -> Decision:
    """What follows the end of the last of `attempts` for its replica."""
    current, spec = attempts[-1], facts.spec
    failure_class = current.failure_class
    if failure_class is None:
        return Decision(next=Next.DONE, attempt=current.attempt)
    if facts.stopping:
        return Decision(next=Next.FAIL, attempt=current.attempt, reason="the run is stopping")
    rule, types = rule_of_end(current), spec.alternatives
    if rule is not None and spec.watch.then(rule) == "stop":
        lost = _lost(rank, current, f"watch.{rule}.then is stop")
        # In a sweep the others have nothing to do with it.
        return lost.model_copy(update={"stops_run": not spec.sweep})
    budget = spec.budget(failure_class) if rule is None else Budget(max_reruns=spec.watch.max_restarts)
    # Every earlier attempt that ended in this class was followed by a rerun from this budget.
    spent = sum(_spends_the_same(attempt, current) for attempt in attempts[:-1])
    if spent >= budget.max_reruns or current.attempt >= ATTEMPT_MAX:
        allowed = f"{budget.max_reruns} rerun{'s' if budget.max_reruns != 1 else ''}"
        name = f"its retry budget for {failure_class}" if rule is None else "watch.max_restarts"
        has_more = current.attempt < ATTEMPT_MAX
        why = f"{name} ({allowed}) is used up" if has_more else f"it has had all {ATTEMPT_MAX} attempts"
        return _lost(rank, current, why)
    if facts.ceiling is not None:
        return _lost(rank, current, facts.ceiling).model_copy(update={"at_ceiling": True})
    # Of shortages only each pass through the types is waited for.
    return rerun(attempts, types, budget.delay(spent // types if current.is_shortage else spent))


def rerun(attempts: Sequence[Attempt], types: int, delay: int) -> Decision:
    """Another attempt after the last of `attempts`: after `delay`, or at once where another type was not tried yet."""
    current = attempts[-1]
    # Another type may be available now: there is no reason to wait before it is tried.
    untried = current.is_shortage and shortages(attempts) % types != 0
    return Decision(
        next=Next.RERUN,
        attempt=current.attempt + 1,
        delay_seconds=0 if untried else jittered(delay, current.job),
        reason=str(current.failure_class),
    )


def _spends_the_same(before: Attempt, current: Attempt) -> bool:
    """Whether two attempts are rerun from the same budget: that of a class, or that of the rules of `watch`."""
    rules = rule_of_end(before), rule_of_end(current)
    return before.failure_class is current.failure_class and (rules[0] is None) == (rules[1] is None)


def _lost(rank: int, attempt: Attempt, why: str) -> Decision:
    reason = f"replica {rank} was lost: {why}: {attempt.reason}".rstrip(": ")[:REASON_MAX]
    return Decision(next=Next.FAIL, attempt=attempt.attempt, lost=True, reason=reason)


def can_do_without(spec: Spec, replicas_lost: int) -> bool:
    """Whether the run continues without so many replicas; `spec` is the run's."""
    return spec.on_replica_failure is OnReplicaFailure.CONTINUE and spec.replicas - replicas_lost >= spec.quorum


def ends_within_hour(attempts: tuple[Attempt, ...]) -> int:
    """How many of `attempts` ended within the hour before the latest end, that one included."""
    ends = [timestamps.parse(attempt.ended_at) for attempt in attempts if attempt.ended_at]
    return sum(max(ends) - end <= _HOUR for end in ends)


def jittered(delay: int, seed: str) -> int:
    """`delay` and up to a quarter of it, so that replicas that ended together are not rerun together.

    Full jitter could make a wait shorter than the spec allows. The same end gives the same wait.
    """
    share = int(digest(seed)[:8], 16) / 16**8
    return delay + int(delay * JITTER * share)
