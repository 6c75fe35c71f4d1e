"""Timer: the launch gate or the deadline of a run has come."""

from __future__ import annotations

from typing import Any

from muster.control.active_run import Runs
from muster.control.aws.clients import s3_client, sagemaker_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.runtime.function import count, logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import FunctionEnvironment
from muster.control.timers import Rung, TimerRequest, ring

_environment = read_environment(FunctionEnvironment)
_runs = Runs(Store(s3_client(), _environment.bucket), Jobs(sagemaker_client()))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """What came of it. An error makes Lambda call again."""
    request = read_event(TimerRequest, event)
    logger.append_keys(run_id=request.run)
    rung = ring(_runs.find(request.run), request.timer)
    logger.info("timer", extra={"timer": request.timer.value, "rung": rung.value})
    if rung is Rung.STOPPED:
        count("RunStopping")
    return {"timer": rung.value}
