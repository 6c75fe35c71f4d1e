"""Settle: the last task of a run."""

from __future__ import annotations

from muster.control.control_plane import ControlPlane
from muster.control.reporting.execution_output import execution_output
from muster.control.runtime.function import Context, count, imported, logger, metrics, time_left
from muster.control.settle import SettleRequest, settle

_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, object]:
    """The output of the execution."""
    request = SettleRequest.model_validate(event)
    logger.append_keys(run_id=request.run)
    run = _plane.runs.require(request.run)
    finished = settle(_plane, run, request.retry, time_left(context))
    result = finished.result
    logger.info(
        "settled",
        extra={
            "verdict": result.verdict.value,
            "reason": result.reason,
            "reruns": result.reruns,
            "continued_by": finished.continued_by,
        },
    )
    count(f"Run{result.verdict.value.capitalize()}")
    if finished.continued_by is not None:
        count("RunContinued")
    return execution_output(run.plan, finished, _plane.store.uri(run.documents.layout.result))


imported()
