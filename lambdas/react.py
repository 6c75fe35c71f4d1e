"""React: a SageMaker training job changed its state, or an event of another backend of the stack came."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.react import JOB_EVENT, JobStateChange, react
from muster.control.runtime.function import Context, imported, logger, metrics, time_left
from muster.control.service_events import service_events

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done about the event. After an error Lambda retries; the dead-letter queue comes last."""
    budget = _plane.allow(time_left(context))
    # Most events are those of training jobs: then no other service is opened.
    services = () if event.get("detail-type") == JOB_EVENT else service_events()
    for service in services:
        reactions = service.heed(_plane, event, budget)
        if reactions is None:
            continue
        for reaction in reactions:
            reaction.log()
        return {"reaction": "; ".join(reaction.what for reaction in reactions) or "dropped: nothing has changed"}
    change = JobStateChange.of(event)
    logger.append_keys(job=change.TrainingJobName)
    reaction = react(_plane, change)
    reaction.log()
    return {"reaction": reaction.what}


imported()
