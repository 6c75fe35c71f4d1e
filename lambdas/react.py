"""React: a SageMaker training job changed its state, or a job on a cluster may have."""

from __future__ import annotations

from muster.contract.hyperpod.wake_events import cluster_of, is_from_topic, is_of_cluster, notices_of
from muster.control.control_plane import ControlPlane
from muster.control.react import JobStateChange, Reaction, react
from muster.control.runtime.function import Context, imported, logger, metrics, read_event, time_left

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done about the event. After an error Lambda retries; the dead-letter queue comes last."""
    budget = _plane.allow(time_left(context))
    if is_from_topic(event) or is_of_cluster(event):
        # Not in a stack without clusters: it would add to every cold start.
        from muster.control.react_cluster import heed_cluster, heed_notices  # noqa: PLC0415

        cluster = cluster_of(event)
        notices = notices_of(event, _plane.settings.bucket)
        reactions = heed_notices(_plane, notices, budget) if cluster is None else heed_cluster(_plane, cluster, budget)
        for reaction in reactions:
            _log(reaction)
        return {"reaction": "; ".join(reaction.what for reaction in reactions) or "dropped: nothing has changed"}
    change = read_event(JobStateChange, event.get("detail"))
    logger.append_keys(job=change.TrainingJobName)
    reaction = react(_plane, change)
    _log(reaction)
    return {"reaction": reaction.what}


def _log(reaction: Reaction) -> None:
    if reaction.name is not None:
        logger.append_keys(run_id=reaction.name.run, rank=reaction.name.rank, attempt=reaction.name.attempt)
    decision = reaction.decision
    logger.info(reaction.what, extra={"decision": decision.model_dump(mode="json") if decision else None})


imported()
