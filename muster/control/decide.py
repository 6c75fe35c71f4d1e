"""What the end of an attempt means. Pure: the same record and the same end give the same decision."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.contract.aws.failures import FailureClass
from muster.contract.document import digest
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.record import Attempt, Decision, Next
from muster.contract.spec.spec import JITTER, OnReplicaFailure, Spec

_HOUR = timedelta(hours=1)
_SHORTAGES = {FailureClass.CAPACITY, FailureClass.QUOTA}


@dataclass(frozen=True)
class Lost:
    """The replica is out of budget; what follows depends on the others."""

    reason: str


def judge(
    spec: Spec, attempts: tuple[Attempt, ...], failure_class: FailureClass | None, *, stopping: bool
) -> Decision | Lost:
    """What follows the end of the last of `attempts`, which ended in `failure_class` (None: it succeeded).

    `spec` is the spec of the replica's rank.
    """
    current = attempts[-1]
    if failure_class is None:
        return Decision(next=Next.DONE, attempt=current.attempt)
    if stopping:
        return Decision(next=Next.FAIL, attempt=current.attempt, reason="the run is stopping")
    budget, types = spec.budget(failure_class), spec.alternatives
    # The earlier attempts that ended in this class are the reruns that it has had.
    spent = sum(attempt.failure_class is failure_class for attempt in attempts[:-1])
    if spent < budget.max_reruns and current.attempt < ATTEMPT_MAX:
        return Decision(
            next=Next.RERUN,
            attempt=current.attempt + 1,
            delay_seconds=0
            if _untried_type(types, attempts, failure_class)
            else _jittered(budget.delay(spent // types), current.job),
            reason=str(failure_class),
        )
    allowed = f"{budget.max_reruns} rerun{'s' if budget.max_reruns != 1 else ''} allowed for {failure_class}"
    return Lost(f"{failure_class} ({allowed})")


def shortages(attempts: tuple[Attempt, ...]) -> int:
    """How many of `attempts` found no instance of their type: for each the next fallback's turn has come."""
    return sum(attempt.failure_class in _SHORTAGES for attempt in attempts)


def ends_within_hour(attempts: tuple[Attempt, ...]) -> int:
    """How many of `attempts` ended in the hour up to the end of the last one, which has ended and counts."""
    ends = [datetime.fromisoformat(attempt.ended_at) for attempt in attempts if attempt.ended_at]
    return sum(max(ends) - end <= _HOUR for end in ends)


def _untried_type(types: int, attempts: tuple[Attempt, ...], failure_class: FailureClass) -> bool:
    """Whether the rerun takes a type that was not asked for since the last wait: then waiting gains nothing."""
    # The current attempt is a shortage too, but not classified yet.
    return failure_class in _SHORTAGES and (shortages(attempts[:-1]) + 1) % types != 0


def weigh_loss(spec: Spec, attempt: int, lost: Lost, replicas_lost: int) -> Decision:
    """Whether the run goes on without the replica: `replicas_lost` counts it too."""
    survivors = spec.replicas - replicas_lost
    if spec.on_replica_failure is OnReplicaFailure.CONTINUE and survivors >= spec.quorum:
        return Decision(next=Next.FAIL, attempt=attempt, reason=lost.reason)
    return Decision(next=Next.STOP, attempt=attempt, reason=lost.reason)


def _jittered(delay: int, seed: str) -> int:
    """`delay` and up to a quarter of it: replicas that ended together shall not come back together.

    Full jitter would make waits shorter than the spec says; the same end gives the same wait.
    """
    share = int(digest(seed)[:8], 16) / 16**8
    return delay + int(delay * JITTER * share)
