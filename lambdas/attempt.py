"""Attempt: launch one attempt of one replica, or check it."""

from __future__ import annotations

from muster.contract.names import REPLICA_LAUNCHED
from muster.control.attempt import attempt
from muster.control.attempt_request import AttemptRequest, Launch
from muster.control.aws.launcher_sessions import Launcher
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import count, imported, logger, metrics, read_environment
from muster.control.runtime.function_settings import AttemptEnvironment

_settings = read_environment(AttemptEnvironment)
_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events", "sts", settings=_settings)
_launcher = Launcher(_plane.clients, _settings.launcher_role_arn, _settings.job_prefix)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: object) -> dict[str, str]:
    """The workflow gets the outcome, also an error, through its task token.

    Raises:
        TokenNotSentError: it could not be reported.
    """
    request = AttemptRequest.model_validate(event)
    logger.append_keys(run_id=request.run, rank=request.rank, attempt=request.attempt)
    try:
        replica = _plane.runs.require(request.run).replica(request.rank)
        launch = attempt(_plane, _launcher, replica, request)
    except Exception as error:
        logger.exception("failed")
        count("AttemptFailed")
        _plane.tokens.fail(request.token, error)
        return {"launch": "failed"}
    logger.info("attempt", extra={"launch": launch.value})
    if launch is Launch.CREATED:
        count(REPLICA_LAUNCHED)
    return {"launch": launch.value}


imported()
