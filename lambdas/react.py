"""React: a SageMaker training job changed its state."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.react import JobStateChange, react
from muster.control.runtime.function import Context, logger, metrics, read_event, time_left

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done about the event. After an error Lambda retries; the dead-letter queue comes last."""
    change = read_event(JobStateChange, event.get("detail"))
    logger.append_keys(job=change.TrainingJobName)
    _plane.allow(time_left(context))
    reaction = react(_plane, change)
    if reaction.name is not None:
        logger.append_keys(run_id=reaction.name.run, rank=reaction.name.rank, attempt=reaction.name.attempt)
    decision = reaction.decision
    logger.info(reaction.what, extra={"decision": decision.model_dump(mode="json") if decision else None})
    return {"reaction": reaction.what}
