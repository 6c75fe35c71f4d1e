"""React: a SageMaker training job changed its state, or the nodes of a cluster did."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.react import JobStateChange, react
from muster.control.runtime.function import Context, imported, logger, metrics, read_event, time_left
from muster.options.hyperpod.contract.wake_events import cluster_of, is_of_cluster

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done about the event. After an error Lambda retries; the dead-letter queue comes last."""
    budget = _plane.allow(time_left(context))
    if is_of_cluster(event):
        # Not in a stack without clusters: it would add to every cold start.
        from muster.control.look import heed_cluster  # noqa: PLC0415

        cluster = cluster_of(event)
        reactions = [] if cluster is None else heed_cluster(_plane, cluster, budget)
        for reaction in reactions:
            reaction.log()
        return {"reaction": "; ".join(reaction.what for reaction in reactions) or "dropped: nothing has changed"}
    change = read_event(JobStateChange, event.get("detail"))
    logger.append_keys(job=change.TrainingJobName)
    reaction = react(_plane, change)
    reaction.log()
    return {"reaction": reaction.what}


imported()
