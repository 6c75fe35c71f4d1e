"""The events that report what the control plane did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.errors import MusterError, SpecError
from muster.contract.names import RERUNS_WITHIN_HOUR
from muster.contract.run import run_events
from muster.contract.run.plan import Plan
from muster.contract.run.record import Record
from muster.control.active_run import ActiveRun
from muster.control.aws.bus import Bus
from muster.control.rerun_decision import ends_within_hour
from muster.control.runtime import clock
from muster.control.runtime.function import measure

if TYPE_CHECKING:
    from muster.contract.run.result import Result


def announce_run_started(bus: Bus, plan: Plan) -> None:
    """Run Started."""
    bus.emit(
        run_events.RunStarted(
            at=plan.created_at,
            run=plan.run,
            execution_arn=plan.execution_arn,
            replicas=plan.spec.replicas,
            plan_digest=plan.digest,
            parent=plan.lineage.parent if plan.lineage else None,
            recipe=None if plan.spec.recipe is None else plan.spec.recipe.shown,
        )
    )


def announce_refusal(bus: Bus, request: str, error: MusterError) -> None:
    """Run Refused, with every problem of a spec or the text of another error. `request` identifies the request."""
    found: list[object] = list(error.problems) if isinstance(error, SpecError) else [error]
    if isinstance(error, SpecError) and error.more:
        found.append(f"and {error.more:,} more")
    problems = tuple(str(problem)[: run_events.TEXT_MAX] for problem in found)
    bus.emit(run_events.RunRefused(at=clock.now(), request=request, error=error.code, problems=problems))


def announce_launch(bus: Bus, record: Record) -> None:
    """Replica Launched: the current attempt has a job."""
    attempt = record.current
    bus.emit(
        run_events.ReplicaLaunched(
            at=clock.now(),
            run=record.run,
            rank=record.rank,
            attempt=attempt.attempt,
            job=attempt.job,
            cluster=None if attempt.cluster is None else attempt.cluster.cluster,
            place=None if attempt.where is None else attempt.where.place,
            why=None if attempt.where is None else attempt.where.why,
        )
    )


def announce_rerun(bus: Bus, record: Record, *, job_prefix: str) -> None:
    """Replica Rerun and its metric, where a rerun was decided after the end of the current attempt."""
    ended, decision = record.current, record.decision
    if decision is None or decision.decided_at is None or ended.failure_class is None:
        return
    measure(RERUNS_WITHIN_HOUR, ends_within_hour(record.attempts), job_prefix=job_prefix)
    bus.emit(
        run_events.ReplicaRerun(
            at=decision.decided_at,
            run=record.run,
            rank=record.rank,
            attempt=ended.attempt,
            failure_class=ended.failure_class,
            reason=ended.reason[: run_events.TEXT_MAX],
            delay_seconds=decision.delay_seconds,
        )
    )


def announce_parked(bus: Bus, record: Record) -> None:
    """Replica Parked: the seat of the current attempt, which has ended, waits."""
    ended, decision = record.current, record.decision
    if decision is None or decision.decided_at is None:
        return
    bus.emit(
        run_events.ReplicaParked(
            at=decision.decided_at, run=record.run, rank=record.rank, attempt=ended.attempt, reason=decision.reason
        )
    )


def announce_run_ended(bus: Bus, run: ActiveRun, result: Result) -> None:
    """Run Succeeded, Run Failed or Run Stopped."""
    bus.emit(run_events.run_ended(result, run.documents.store.uri(run.documents.layout.result)))
