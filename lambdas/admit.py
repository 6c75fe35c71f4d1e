"""Admit: a run joins the queue of a stack that caps its concurrent replicas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.names import RUN_MAX
from muster.contract.run.run_queue import QueuedRun
from muster.control.active_run import Runs
from muster.control.admission import run_queue
from muster.control.attempt import Token
from muster.control.aws.aws_errors import is_passing
from muster.control.aws.clients import s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.runtime import clock
from muster.control.runtime.function import logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import FunctionEnvironment

_environment = read_environment(FunctionEnvironment)
_store = Store(s3_client(), _environment.bucket)
_tokens = Tokens(stepfunctions_client())
_runs = Runs(_store, Jobs(sagemaker_client()))
_queue = run_queue(_store, _tokens, _environment.max_concurrent_replicas)


class AdmitRequest(BaseModel):
    """What the workflow sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    token: Token


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, bool]:
    """Always answers; the workflow learns of its admission through its task token."""
    request = read_event(AdmitRequest, event)
    logger.append_keys(run_id=request.run)
    try:
        plan = _runs.require(request.run).plan
        queued = QueuedRun(
            run=plan.run, execution_arn=plan.execution_arn, replicas=plan.spec.replicas, asked_at=clock.now()
        )
        admitted = _queue is None or _queue.ask(queued, request.token)
        if _queue is None:
            _tokens.release(request.token)
    except Exception as error:
        logger.exception("failed")
        kind = "Muster.Unavailable" if is_passing(error) else f"Muster.{type(error).__name__}"
        _tokens.fail(request.token, kind, str(error))
        return {"admitted": False}
    logger.info("queued", extra={"admitted": admitted})
    return {"admitted": admitted}
