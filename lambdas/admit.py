"""Admit: a run joins the queue of a stack that caps its concurrent replicas."""

from __future__ import annotations

from muster.control.admit import admit
from muster.control.aws.task_tokens import TokenRequest
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import imported, logger, metrics

_plane = ControlPlane.from_environment("s3", "stepfunctions")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: object) -> dict[str, bool]:
    """The workflow continues when its task token is completed, with an error as well.

    Raises:
        TokenNotSentError: it could not be reported.
    """
    request = TokenRequest.model_validate(event)
    logger.append_keys(run_id=request.run)
    try:
        admitted = admit(_plane, request)
    except Exception as error:
        logger.exception("failed")
        _plane.tokens.fail(request.token, error)
        return {"admitted": False}
    logger.info("queued", extra={"admitted": admitted})
    return {"admitted": admitted}


imported()
