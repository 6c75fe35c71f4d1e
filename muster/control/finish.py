"""The end of a run, once, for everybody who comes to it: the workflow's last task, an execution cut off, the sweep."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.announcements import announce_run_ended
from muster.control.control_plane import ControlPlane
from muster.control.report_page import page_of, publish_page
from muster.control.runtime.time_budget import TimeBudget
from muster.control.settle import settle


@dataclass(frozen=True)
class Finished:
    """A run that is over."""

    result: Result
    page_uri: str | None
    continued_by: str | None


def finish_run(plane: ControlPlane, run: ActiveRun, budget: TimeBudget, *, may_continue: bool = True) -> Finished:
    """Settle the run, free its place in the queue, announce its end, start its continuation, publish its page.

    Every step can be repeated, and the page comes last: where it stands, the end was announced. With `may_continue`
    false jobs of the run may be left, and nothing is started that would share its rendezvous.
    """
    result = settle(run, budget)
    if plane.queue is not None:
        plane.queue.leave(run.plan.execution_arn)
    page_uri = page_of(run)
    if page_uri is None:
        announce_run_ended(plane.bus, run, result)
    continued_by = plane.rerun_policy.start_next(run, result) if may_continue else None
    return Finished(result, page_uri or publish_page(run, result, budget), continued_by)
