"""Starts the continuation of a failed run, as its policy asks, and stops it where the run is cancelled meanwhile.

A cancellation and a start of the continuation may meet. A cancellation first raises the fence and then looks for the
continuation's execution; the plan of that execution, which exists by then, looks at the fence. So one of them finds the
other, and a cancelled run is not continued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.run.continuation import next_run
from muster.contract.run.execution_input import execution_input
from muster.contract.run.result import Result
from muster.contract.run.run_events import RunContinued
from muster.control.active_run import ActiveRun
from muster.control.aws.bus import Bus
from muster.control.aws.executions import Executions, state_machine_of
from muster.control.cost_ceiling import ended_at_ceiling
from muster.control.reporting.announcements import announce_refusal
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


def _must_end(run: ActiveRun) -> bool:
    """Whether a user, launch gate, deadline or cost ceiling ended the run. A continuation must not evade these."""
    fence = run.documents.fence()
    forbids = fence is not None and (fence.is_cancellation or fence.cause.is_limit)
    return forbids or ended_at_ceiling(run)


class ContinuationStart:
    """Starts the continuations of failed runs."""

    def __init__(self, stepfunctions: SFNClient, bus: Bus) -> None:
        self._stepfunctions = stepfunctions
        self._bus = bus

    def start_next(self, run: ActiveRun, result: Result) -> str | None:
        """Start the continuation, if the policy requires one, and return its name. Idempotent."""
        wanted = next_run(run.plan, result)
        if wanted is None or run.plan.spec.continuation_policy is None or _must_end(run):
            return None
        name, spec = wanted
        executions = self._executions(run)
        # The event of a cancellation takes seconds until the fence is raised.
        if executions.is_cancelled(run.plan.execution_arn):
            return None
        try:
            began = executions.start(name, execution_input(spec))
        except (RunNameTakenError, SpecError) as error:
            announce_refusal(self._bus, run.plan.execution_arn, error)
            return None
        if began:
            generation = 1 + (run.plan.lineage.generation if run.plan.lineage else 0)
            self._bus.emit(
                RunContinued(
                    at=clock.now(),
                    run=run.plan.run,
                    continued_by=name,
                    generation=generation,
                    max=run.plan.spec.continuation_policy.max,
                )
            )
        return name

    def stop_next(self, run: ActiveRun, result: Result) -> None:
        """Stop the continuation that was started while the run was being cancelled. The run's fence must be raised."""
        wanted = next_run(run.plan, result)
        if wanted is not None:
            name, spec = wanted
            cause = f"{run.plan.run}, which this run continues, was cancelled."
            self._executions(run).stop_started(name, execution_input(spec), cause)

    def _executions(self, run: ActiveRun) -> Executions:
        return Executions(self._stepfunctions, state_machine_of(run.plan.execution_arn))
