"""A run that has ended is entered among those of its day, which clients list."""

from __future__ import annotations

from collections import Counter

from muster.contract.run.ended_run import REASON_MAX, EndedRun, EndedRuns, FailureCount, key_of_day
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Result
from muster.contract.text import shortened
from muster.control.active_run import ActiveRun


def enter_ended_run(run: ActiveRun, result: Result, continued_by: str | None) -> None:
    """Write what a list shows of the run. Idempotent; runs that end at the same time write one after the other.

    Raises:
        DocumentError: the day cannot be read, for instance because a newer version of Muster has written it.
        ConflictError: other runs were entered during every try; a later call enters this one.
    """
    ended = ended_run(run.plan, result, continued_by)
    day = key_of_day(ended.started_at)
    run.documents.store.change(EndedRuns, day, lambda before: (before or EndedRuns()).with_run(ended))


def ended_run(plan: Plan, result: Result, continued_by: str | None) -> EndedRun:
    """What a list shows of a run. Pure."""
    return EndedRun(
        run=plan.run,
        execution_arn=plan.execution_arn,
        started_at=plan.created_at,
        verdict=result.verdict,
        reason=shortened(result.reason, REASON_MAX),
        replicas=len(result.replicas),
        parked=sum(replica.outcome is ReplicaOutcome.PARKED for replica in result.replicas),
        rounds=result.committed_rounds,
        reruns=result.reruns,
        failures=_failures(result),
        usd=result.usd,
        parent=plan.lineage.parent if plan.lineage else None,
        continued_by=continued_by,
        recipe=None if plan.spec.recipe is None else plan.spec.recipe.name,
    )


def _failures(result: Result) -> tuple[FailureCount, ...]:
    attempts: Counter[str] = Counter()
    reruns: Counter[str] = Counter()
    for replica in result.replicas:
        for attempt in replica.attempts:
            if attempt.failure_class is not None:
                attempts[attempt.failure_class] += 1
                reruns[attempt.failure_class] += attempt is not replica.attempts[-1] and not attempt.parked
    return tuple(
        FailureCount(failure_class=str(name), attempts=count, reruns=reruns[name])
        for name, count in attempts.most_common()
    )
