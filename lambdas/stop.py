"""Stop: called by the workflow when a replica cannot be launched or a run has lost its quorum, and for the event that
its execution has ended."""

from __future__ import annotations

from muster.control.aws.task_tokens import workflow_state
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.control_plane import ControlPlane
from muster.control.launch_failure import LaunchFailure, give_up_replica
from muster.control.runtime.function import Context, count, imported, logger, metrics, time_left
from muster.control.stop import StopRequest, stop_run

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str] | dict[str, str | int]:
    """Fence the run and stop its jobs; after the execution's end also verify that they have ended, and settle."""
    if "detail" in event:
        ended = ExecutionEnded.model_validate(event["detail"])
        logger.append_keys(run_id=ended.run)
        cleared = clear_up(_plane, _plane.runs.find(ended.run), ended, time_left(context))
        logger.info("cleared up" if cleared else "not a run of this stack", extra={"status": ended.status})
        return {"stop": "verified" if cleared else "nothing to stop"}
    if "attempt" in event:
        return _give_up(LaunchFailure.model_validate(event), context)
    request = StopRequest.model_validate(event)
    logger.append_keys(run_id=request.run)
    if not stop_run(_plane, request, _plane.allow(time_left(context))):
        logger.info("another call stops the run", extra={"reason": request.reason})
        return {"stop": "another call stops the run"}
    logger.info("stopping", extra={"reason": request.reason})
    count("RunStopping")
    return {"stop": "asked"}


def _give_up(failure: LaunchFailure, context: Context) -> dict[str, str | int]:
    """The state with which the replica's workflow continues."""
    logger.append_keys(run_id=failure.run, rank=failure.rank, attempt=failure.attempt)
    _plane.allow(time_left(context))
    decision = give_up_replica(_plane, failure)
    logger.warning("could not be launched", extra={"reason": decision.reason, "next": decision.next.value})
    if decision.lost:
        count("ReplicaLost")
    return workflow_state(failure.run, failure.rank, decision)


imported()
