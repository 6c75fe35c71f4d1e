"""Attempt: launch one attempt of one replica, or learn what became of it."""

from __future__ import annotations

from typing import Any

from muster.contract.aws.metric_names import REPLICA_LAUNCHED
from muster.control.active_run import Runs
from muster.control.attempt import AttemptRequest, Launch, attempt
from muster.control.aws.aws_errors import is_passing
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.runtime.function import count, logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import FunctionEnvironment

_environment = read_environment(FunctionEnvironment)
_bus = Bus(events_client(), _environment.bus)
_tokens = Tokens(stepfunctions_client())
_runs = Runs(Store(s3_client(), _environment.bucket), Jobs(sagemaker_client()))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """Always answers; the workflow learns the outcome through its task token."""
    request = read_event(AttemptRequest, event)
    logger.append_keys(run_id=request.run, rank=request.rank, attempt=request.attempt)
    try:
        launch = attempt(_runs.require(request.run), _tokens, _bus, request)
    except Exception as error:
        # The token's failure makes the workflow try again now; raising would do so only on AWS, and with a traceback.
        logger.exception("failed")
        count("AttemptFailed")
        kind = "Muster.Unavailable" if is_passing(error) else f"Muster.{type(error).__name__}"
        _tokens.fail(request.token, kind, str(error))
        return {"launch": "failed"}
    logger.info("attempt", extra={"launch": launch.value})
    if launch is Launch.CREATED:
        count(REPLICA_LAUNCHED)
    return {"launch": launch.value}
