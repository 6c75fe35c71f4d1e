"""Sweep: woken by a schedule; nothing outlives its run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from muster.control.active_run import Runs
from muster.control.admission import run_queue
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, sagemaker_client, stepfunctions_client
from muster.control.aws.executions import Executions
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.aws.tokens import Tokens
from muster.control.rerun_policy import Succession
from muster.control.runtime.function import Context, count, logger, metrics, read_environment, read_event, time_left
from muster.control.runtime.function_settings import ExecutionsEnvironment
from muster.control.sweep import SweepRequest, sweep

_environment = read_environment(ExecutionsEnvironment)
_bus = Bus(events_client(), _environment.bus)
_jobs = Jobs(sagemaker_client())
_store = Store(s3_client(), _environment.bucket)
_runs = Runs(_store, _jobs)
_stepfunctions = stepfunctions_client()
_executions = Executions(_stepfunctions, _environment.state_machine_arn)
_succession = Succession(_stepfunctions, _bus)
_queue = run_queue(_store, Tokens(_stepfunctions), _environment.max_concurrent_replicas)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """What was found and done."""
    request = read_event(SweepRequest, event)
    swept = sweep(
        _runs.find,
        _jobs,
        _executions,
        _bus,
        _environment.job_prefix,
        succession=_succession,
        queue=_queue,
        young_seconds=request.young_seconds,
        deadline=time_left(context),
    )
    found = asdict(swept)
    (logger.warning if any(found.values()) else logger.info)("swept", extra=found)
    count("OrphanJobsStopped", len(swept.stopped))
    count("RunsSettledLate", len(swept.settled))
    return found
