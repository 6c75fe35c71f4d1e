"""A run joins the run queue, and learns whether it may launch its replicas."""

from __future__ import annotations

from muster.contract.run.run_queue import QueuedRun, QueueToken
from muster.control.aws.task_tokens import TokenRequest
from muster.control.control_plane import ControlPlane
from muster.control.documents import RunDocuments
from muster.control.runtime import clock


def admit(plane: ControlPlane, request: TokenRequest) -> bool:
    """Put a run into the queue, or admit it at once where there is none; whether it may launch its replicas now."""
    # Not by plane.runs, which needs a client of SageMaker.
    plan = RunDocuments(plane.store, request.run).require_plan()
    if plane.queue is None:
        plane.tokens.release(request.token)
        return True
    queued = QueuedRun(
        run=plan.run, execution_arn=plan.execution_arn, replicas=plan.spec.replicas, asked_at=clock.now()
    )
    return plane.queue.join(queued, QueueToken(token=request.token, armed_at=request.armed_at))
