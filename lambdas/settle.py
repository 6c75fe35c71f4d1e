"""Settle: the last task of a run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from muster.contract.names import RUN_MAX
from muster.control.active_run import Runs
from muster.control.admission import run_queue
from muster.control.announcements import tell_of_end
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.execution_output import ending
from muster.control.report_page import publish_page
from muster.control.rerun_policy import Succession
from muster.control.runtime.function import Context, count, logger, metrics, read_environment, read_event, time_left
from muster.control.runtime.function_settings import FunctionEnvironment
from muster.control.settle import settle

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
    continued_by = _succession.follow(run, result)
    if continued_by is not None:
        logger.info("goes on", extra={"continued_by": continued_by})
        count("RunRerun")
    count(f"Run{result.verdict.value.capitalize()}")
    page = publish_page(run, result, deadline)
    return ending(run.plan, result, _store.uri(run.documents.layout.result), page, continued_by)
