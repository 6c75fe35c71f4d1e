"""Which events follow from what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.aws.metric_names import RERUNS_WITHIN_HOUR
from muster.contract.errors import MusterError, SpecError
from muster.contract.run import events
from muster.contract.run.plan import Plan
from muster.contract.run.record import Next
from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.aws.bus import Bus
from muster.control.runtime import clock
from muster.control.runtime.function import measure

if TYPE_CHECKING:
    from muster.control.outcome import Conclusion


def tell_of_start(bus: Bus, plan: Plan) -> None:
    """Run Started."""
    bus.emit(
        events.RunStarted(
            at=plan.created_at,
            run=plan.run,
            execution_arn=plan.execution_arn,
            replicas=plan.spec.replicas,
            plan_digest=plan.digest,
            parent=plan.lineage.parent if plan.lineage else None,
        )
    )


def refusal(request: str, error: MusterError) -> events.RunRefused:
    """Run Refused: every problem of a spec, or the one of anything else."""
    found = error.problems if isinstance(error, SpecError) else (error,)
    problems = tuple(str(problem)[: events.TEXT_MAX] for problem in found[: events.PROBLEMS_MAX])
    return events.RunRefused(at=clock.now(), request=request, error=error.code, problems=problems)


def tell_of_launch(bus: Bus, run: ActiveRun, rank: int, attempt: int) -> None:
    """Replica Launched."""
    job = str(run.job_name(rank, attempt))
    bus.emit(events.ReplicaLaunched(at=clock.now(), run=run.plan.run, rank=rank, attempt=attempt, job=job))


def tell_of_conclusion(bus: Bus, run: ActiveRun, concluded: Conclusion) -> None:
    """Replica Rerun and its metric, where one was decided on just now."""
    decision, end = concluded.decision, concluded.end
    if not concluded.fresh or decision.next is not Next.RERUN or end.failure_class is None:
        return
    measure(RERUNS_WITHIN_HOUR, concluded.ends_within_hour)
    bus.emit(
        events.ReplicaRerun(
            at=decision.decided_at,
            run=run.plan.run,
            rank=concluded.rank,
            attempt=concluded.attempt,
            failure_class=end.failure_class,
            reason=end.reason[: events.TEXT_MAX],
            delay_seconds=decision.delay_seconds,
        )
    )


def tell_of_end(bus: Bus, run: ActiveRun, result: Result) -> None:
    """Run Succeeded, Run Failed or Run Stopped."""
    bus.emit(events.run_ended(result, run.documents.store.uri(run.documents.layout.result)))
