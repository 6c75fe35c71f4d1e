"""Look: replicas on clusters say that their jobs may have changed. Anyone with a replica's rights can say so."""

from __future__ import annotations

from muster.contract.run.notice_events import notices_of
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import Context, imported, logger, metrics, time_left
from muster.options.hyperpod.control.heeding import heed_notices

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, str]:
    """What was done about the notices. After an error the queue brings them again; its dead letters come last."""
    budget = _plane.allow(time_left(context))
    reactions = heed_notices(_plane, notices_of(event, _plane.settings.bucket), budget)
    for reaction in reactions:
        reaction.log()
    return {"reaction": "; ".join(reaction.what for reaction in reactions) or "dropped: there is no notice"}


imported()
