"""A run joins the run queue, and learns whether it may launch its replicas."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.run.run_queue import QueuedRun, QueueToken
from muster.control.aws.task_tokens import TokenRequest
from muster.control.control_plane import ControlPlane
from muster.control.documents import RunDocuments
from muster.control.runtime import clock


class AdmitRequest(TokenRequest):
    """What the workflow sends."""

    # An execution of an older definition does not send it.
    entered_at: Annotated[str, Field(max_length=64)] = ""

    @property
    def queue_token(self) -> QueueToken:
        """The token as it is stored; without `armed_at` where the workflow did not say when it entered its state."""
        return QueueToken(token=self.token, armed_at=self.armed_at if self.entered_at else "")


def admit(plane: ControlPlane, request: AdmitRequest) -> bool:
    """Put a run into the queue, or admit it at once where there is none; whether it may launch its replicas now."""
    # Not by plane.runs, which needs a client of SageMaker.
    plan = RunDocuments(plane.store, request.run).require_plan()
    if plane.queue is None:
        plane.tokens.release(request.token)
        return True
    queued = QueuedRun(
        run=plan.run, execution_arn=plan.execution_arn, replicas=plan.spec.replicas, asked_at=clock.now()
    )
    return plane.queue.join(queued, request.queue_token)
