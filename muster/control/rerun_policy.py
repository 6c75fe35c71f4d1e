"""The rerun policy: starts the continuation of a failed run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.run.continuation import next_run
from muster.contract.run.execution_input import execution_input
from muster.contract.run.result import Result
from muster.contract.run.run_events import RunRerun
from muster.control.active_run import ActiveRun
from muster.control.aws.bus import Bus
from muster.control.aws.executions import Executions, state_machine_of
from muster.control.cost_ceiling import reached_ceiling
from muster.control.reporting.announcements import announce_refusal
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


def _has_met_a_limit(run: ActiveRun) -> bool:
    """Whether launch gate, deadline or cost ceiling ended the run. A continuation must not evade these limits."""
    fence = run.documents.fence()
    return (fence is not None and fence.cause.is_limit) or reached_ceiling(run) is not None


class RerunPolicy:
    """Starts the continuations of failed runs."""

    def __init__(self, stepfunctions: SFNClient, bus: Bus) -> None:
        self._stepfunctions = stepfunctions
        self._bus = bus

    def start_next(self, run: ActiveRun, result: Result) -> str | None:
        """Start the continuation, if the policy requires one, and return its name. Idempotent."""
        wanted = next_run(run.plan, result)
        if wanted is None or run.plan.spec.rerun is None or _has_met_a_limit(run):
            return None
        name, spec = wanted
        executions = Executions(self._stepfunctions, state_machine_of(run.plan.execution_arn))
        try:
            began = executions.start(name, execution_input(spec))
        except (RunNameTakenError, SpecError) as error:
            announce_refusal(self._bus, run.plan.execution_arn, error)
            return None
        if began:
            generation = 1 + (run.plan.lineage.generation if run.plan.lineage else 0)
            self._bus.emit(
                RunRerun(
                    at=clock.now(),
                    run=run.plan.run,
                    continued_by=name,
                    generation=generation,
                    max=run.plan.spec.rerun.max,
                )
            )
        return name
