"""Scale: an event on Muster's bus, or a run's own schedule, asks for another number of replicas."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import Context, count, imported, logger, metrics, read_environment, time_left
from muster.control.runtime.function_settings import ScaleEnvironment
from muster.options.elastic.control.seat_changes import ScaleRequest, scale

_settings = read_environment(ScaleEnvironment)
_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events", settings=_settings)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done. After an error Lambda retries; the dead-letter queue comes last."""
    budget = _plane.allow(time_left(context))
    request = ScaleRequest.of(event)
    logger.append_keys(run_id=request.run)
    scaled = scale(_plane, request, _settings.launches_per_second, budget)
    logger.info("scale", extra={"replicas": request.replicas, "by": request.by, "scale": scaled})
    if scaled == "scaled":
        count("RunScaled")
    return {"scale": scaled.partition(":")[0]}


imported()
