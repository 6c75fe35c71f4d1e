"""Turn: a run asks for its turn where the stack caps the concurrent replicas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.names import RUN_MAX
from muster.contract.turns import Turn
from muster.control import clock
from muster.control.active_run import Runs
from muster.control.attempt import Token
from muster.control.aws_errors import is_passing
from muster.control.clients import s3_client, sagemaker_client, stepfunctions_client
from muster.control.environment import FunctionEnvironment
from muster.control.function import logger, metrics, read_environment, read_event
from muster.control.jobs import Jobs
from muster.control.store import Store
from muster.control.tokens import Tokens
from muster.control.turns import run_queue

_environment = read_environment(FunctionEnvironment)
_store = Store(s3_client(), _environment.bucket)
_tokens = Tokens(stepfunctions_client())
_runs = Runs(_store, Jobs(sagemaker_client()))
_queue = run_queue(_store, _tokens, _environment.max_concurrent_replicas)


class TurnRequest(BaseModel):
    """What the workflow sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    token: Token


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, bool]:
    """Always answers; the workflow learns of its turn through its task token."""
    request = read_event(TurnRequest, event)
    logger.append_keys(run_id=request.run)
    try:
        plan = _runs.require(request.run).plan
        turn = Turn(run=plan.run, execution_arn=plan.execution_arn, replicas=plan.spec.replicas, asked_at=clock.now())
        admitted = _queue is None or _queue.ask(turn, request.token)
        if _queue is None:
            _tokens.release(request.token)
    except Exception as error:
        logger.exception("failed")
        kind = "Muster.Unavailable" if is_passing(error) else f"Muster.{type(error).__name__}"
        _tokens.fail(request.token, kind, str(error))
        return {"admitted": False}
    logger.info("turn", extra={"admitted": admitted})
    return {"admitted": admitted}
