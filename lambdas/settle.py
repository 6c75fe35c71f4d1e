"""Settle: the last task of a run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from muster.contract.names import RUN_MAX
from muster.control.active_run import Runs
from muster.control.bus import Bus
from muster.control.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.ending import ending
from muster.control.environment import FunctionEnvironment
from muster.control.function import Context, count, logger, metrics, read_environment, read_event, time_left
from muster.control.jobs import Jobs
from muster.control.page import publish_page
from muster.control.settle import settle
from muster.control.store import Store
from muster.control.succession import Succession
from muster.control.tell import tell_of_end
from muster.control.tokens import Tokens
from muster.control.turns import run_queue

_environment = read_environment(FunctionEnvironment)
_bus = Bus(events_client(), _environment.bus)
_store = Store(s3_client(), _environment.bucket)
_queue = run_queue(_store, Tokens(stepfunctions_client()), _environment.max_concurrent_replicas)
_succession = Succession(stepfunctions_client(), _bus)
_runs = Runs(_store, Jobs(sagemaker_client()))


class SettleRequest(BaseModel):
    """What the workflow sends."""

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """What the execution says of the run."""
    request = read_event(SettleRequest, event)
    logger.append_keys(run_id=request.run)
    run = _runs.require(request.run)
    deadline = time_left(context)
    result = settle(run, deadline).result
    if _queue is not None:
        _queue.leave(run.plan.execution_arn)
    logger.info("settled", extra={"verdict": result.verdict.value, "reason": result.reason, "reruns": result.reruns})
    tell_of_end(_bus, run, result)
    heir = _succession.follow(run, result)
    if heir is not None:
        logger.info("goes on", extra={"heir": heir})
        count("RunRerun")
    count(f"Run{result.verdict.value.capitalize()}")
    page = publish_page(run, result, deadline)
    return ending(run.plan, result, _store.uri(run.documents.layout.result), page, heir)
