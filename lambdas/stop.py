"""Stop: asked by the workflow when a run has lost what it needs, and by the event that its execution has ended."""

from __future__ import annotations

from typing import Any

from muster.contract.run.events import QuorumLost
from muster.contract.run.fence import Fence
from muster.contract.run.result import Verdict
from muster.control.active_run import Runs
from muster.control.admission import run_queue
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.rerun_policy import Succession
from muster.control.runtime import clock
from muster.control.runtime.function import Context, count, logger, metrics, read_environment, read_event, time_left
from muster.control.runtime.function_settings import FunctionEnvironment
from muster.control.stop import StopRequest, raise_fence_and_stop

_environment = read_environment(FunctionEnvironment)
_bus = Bus(events_client(), _environment.bus)
_store = Store(s3_client(), _environment.bucket)
_runs = Runs(_store, Jobs(sagemaker_client()))
_stepfunctions = stepfunctions_client()
_succession = Succession(_stepfunctions, _bus)
_queue = run_queue(_store, Tokens(_stepfunctions), _environment.max_concurrent_replicas)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: Context) -> dict[str, str]:
    """Fence the run and stop its jobs; after the execution's end also see them gone, and settle."""
    if "detail" in event:
        return _after_the_end(read_event(ExecutionEnded, event["detail"]), context)
    request = read_event(StopRequest, event)
    logger.append_keys(run_id=request.run)
    fence = Fence(verdict=Verdict.FAILED, reason=request.reason, at=clock.now())
    run = _runs.require(request.run)
    # Every replica that is lost asks for the stop; who raises the fence tells of it.
    if run.documents.raise_fence(fence) is fence:
        _bus.emit(QuorumLost(at=fence.at, run=request.run, reason=fence.reason))
    raise_fence_and_stop(run, fence)
    logger.info("stopping", extra={"reason": request.reason})
    count("RunStopping")
    return {"stop": "asked"}


def _after_the_end(ended: ExecutionEnded, context: Context) -> dict[str, str]:
    logger.append_keys(run_id=ended.run)
    run = _runs.find(ended.run)
    cleared = clear_up(run, ended, _bus, time_left(context), succession=_succession, queue=_queue)
    logger.info("cleared up" if cleared else "not a run of ours", extra={"status": ended.status})
    return {"stop": "verified" if cleared else "nothing to stop"}
