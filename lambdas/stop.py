"""Stop: asked by the workflow when a run has lost what it needs, and by the event that its execution has ended."""

from __future__ import annotations

from typing import Any, Protocol

from muster.contract.fence import Fence
from muster.contract.result import Verdict
from muster.control import clock
from muster.control.aws import s3_client, sagemaker_client
from muster.control.documents import RunDocuments
from muster.control.environment import FunctionEnvironment
from muster.control.function import count, logger, metrics, read_environment, read_event
from muster.control.jobs import Jobs
from muster.control.stop import ExecutionEnded, StopRequest, clear_up, raise_fence_and_stop
from muster.control.store import Store

_environment = read_environment(FunctionEnvironment)
_store = Store(s3_client(), _environment.bucket)
_jobs = Jobs(sagemaker_client())

_RESERVE_SECONDS = 60  # of the function's time, kept for settling after the last look


class _Context(Protocol):
    def get_remaining_time_in_millis(self) -> int: ...


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: _Context) -> dict[str, str]:
    """Fence the run and stop its jobs; after the execution's end also see them gone, and settle."""
    if "detail" in event:
        return _after_the_end(read_event(ExecutionEnded, event["detail"]), context)
    request = read_event(StopRequest, event)
    logger.append_keys(run_id=request.run)
    documents = RunDocuments(_store, request.run)
    fence = Fence(verdict=Verdict.FAILED, reason=request.reason, at=clock.now())
    raise_fence_and_stop(documents, _jobs, documents.require_plan(), fence)
    logger.info("stopping", extra={"reason": request.reason})
    count("RunStopping")
    return {"stop": "asked"}


def _after_the_end(ended: ExecutionEnded, context: _Context) -> dict[str, str]:
    logger.append_keys(run_id=ended.run)
    seconds = context.get_remaining_time_in_millis() / 1000 - _RESERVE_SECONDS
    cleared = clear_up(RunDocuments(_store, ended.run), _jobs, ended, seconds)
    logger.info("cleared up" if cleared else "not a run of ours", extra={"status": ended.status})
    return {"stop": "verified" if cleared else "nothing to stop"}
