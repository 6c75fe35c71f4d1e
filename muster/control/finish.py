"""The end of a run: one function for the workflow's last task, for an aborted execution and for the sweep."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.control_plane import ControlPlane
from muster.control.reporting.announcements import announce_run_ended
from muster.control.reporting.report_page import page_of, publish_page
from muster.control.runtime.time_budget import TimeBudget
from muster.control.settle import settle

_SHARE_FOR_JOBS = 0.5  # of the time budget


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    result: Result
    page_uri: str | None
    continued_by: str | None


def finish_run(plane: ControlPlane, run: ActiveRun, budget: TimeBudget, *, may_continue: bool = True) -> Finished:
    """Settle the run, free its place in the queue, announce its end, start its continuation, publish its page.

    Every step is idempotent. The page is written last: where it exists, the end was announced. With `may_continue`
    false, jobs of the run may still be active, so no continuation is started, which would share their rendezvous.
    """
    # Throttled calls of SageMaker must not use up the time for reading the manifests.
    plane.allow(TimeBudget.of(budget.remaining * _SHARE_FOR_JOBS))
    result = settle(run, budget)
    if plane.queue is not None:
        plane.queue.leave(run.plan.execution_arn)
    page_uri = page_of(run)
    if page_uri is None:
        announce_run_ended(plane.bus, run, result)
    continued_by = plane.rerun_policy.start_next(run, result) if may_continue else None
    return Finished(result, page_uri or publish_page(run, result, budget), continued_by)
