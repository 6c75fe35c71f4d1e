"""Clearing up after an execution that ended before its run was settled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.names import run_name
from muster.contract.run.fence import Fence
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.admission import RunQueue
from muster.control.announcements import tell_of_end
from muster.control.aws.bus import Bus
from muster.control.report_page import publish_page
from muster.control.rerun_policy import Succession
from muster.control.runtime import clock
from muster.control.runtime.time_budget import Deadline
from muster.control.settle import settle
from muster.control.stop import StillRunningError, raise_fence_and_stop, verify_stopped

_FOR_LOOKING = 0.8  # of the time that there is


class ExecutionEnded(BaseModel):
    """The detail of `Step Functions Execution Status Change`, as far as Muster reads it."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048, alias="executionArn")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    status: str

    @property
    def run(self) -> str:
        """The run of this execution."""
        return run_name(self.name)

    @property
    def fence(self) -> Fence:
        """Why the run stops, if nobody stopped it before."""
        if self.status == "ABORTED":
            return Fence(verdict=Verdict.STOPPED, reason="the execution was stopped", at=clock.now())
        return Fence(verdict=Verdict.FAILED, reason=f"the execution ended as {self.status}", at=clock.now())


def clear_up(
    run: ActiveRun | None,
    ended: ExecutionEnded,
    bus: Bus,
    deadline: Deadline,
    pause: Callable[[float], None] = time.sleep,
    *,
    succession: Succession,
    queue: RunQueue | None,
) -> bool:
    """See an ended execution's jobs gone, settle its run, and tell of that. False: it had no run.

    Raises:
        StillRunningError: jobs are left at the deadline; the run is settled as far as it can be.
        Exception: a replica could not be asked to stop, although all jobs are gone by now.
    """
    # An execution that was refused because its name was taken must not stop the run that owns the name.
    if run is None or run.plan.execution_arn != ended.execution_arn:
        return False
    trouble: Exception | None = None
    if run.documents.result() is None:
        run.documents.raise_fence(ended.fence)
        try:
            raise_fence_and_stop(run, ended.fence)
        except Exception as error:
            # The list of jobs, looked at next, does not depend on the records that may be the trouble.
            trouble = error
    try:
        # The rest of the time is for settling.
        verify_stopped(run, Deadline.after(deadline.remaining * _FOR_LOOKING, deadline.monotonic), pause)
    except StillRunningError as error:
        trouble = error
    settlement = settle(run, deadline)
    # The workflow tells of the runs that it has settled itself.
    if settlement.fresh:
        tell_of_end(bus, run, settlement.result)
    if queue is not None:
        queue.leave(ended.execution_arn)
    publish_page(run, settlement.result, deadline)
    if trouble is not None:
        raise trouble
    # Also after the workflow has settled the run: it may have been cut off before it came to this.
    succession.follow(run, settlement.result)
    return True
