"""Timer: called at the time of a run's launch gate or deadline."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import Context, count, imported, logger, metrics, time_left
from muster.control.timer import Fired, TimerRequest, fire

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """The result. Lambda retries after an error."""
    request = TimerRequest.model_validate(event)
    budget = _plane.allow(time_left(context))
    logger.append_keys(run_id=request.run)
    fired = fire(_plane, _plane.runs.find(request.run), request.timer, budget)
    logger.info("timer", extra={"timer": request.timer.value, "fired": fired.value})
    if fired is Fired.STOPPED:
        count("RunStopping")
    return {"timer": fired.value}


imported()
