"""Stop: called by the workflow when a run has lost its quorum, and for the event that its execution has ended."""

from __future__ import annotations

from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import Context, count, logger, metrics, read_event, time_left
from muster.control.stop import StopRequest, stop_run

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """Fence the run and stop its jobs; after the execution's end also verify that they have ended, and settle."""
    if "detail" in event:
        ended = read_event(ExecutionEnded, event["detail"])
        logger.append_keys(run_id=ended.run)
        cleared = clear_up(_plane, _plane.runs.find(ended.run), ended, time_left(context))
        logger.info("cleared up" if cleared else "not a run of this stack", extra={"status": ended.status})
        return {"stop": "verified" if cleared else "nothing to stop"}
    request = read_event(StopRequest, event)
    logger.append_keys(run_id=request.run)
    if not stop_run(_plane, request, _plane.allow(time_left(context))):
        logger.info("another call stops the run", extra={"reason": request.reason})
        return {"stop": "another call stops the run"}
    logger.info("stopping", extra={"reason": request.reason})
    count("RunStopping")
    return {"stop": "asked"}
