"""Plan: the first task of a run."""

from __future__ import annotations

from typing import Any

from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.run.plan import Place
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.admission import run_queue
from muster.control.announcements import refusal, tell_of_start
from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, scheduler_client, stepfunctions_client
from muster.control.aws.store import Store
from muster.control.aws.timer_schedules import Timers
from muster.control.aws.tokens import Tokens
from muster.control.planning import PlanRequest, make_plan
from muster.control.runtime import clock
from muster.control.runtime.function import count, logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import PlanEnvironment

# Step Functions: a Fail state's cause has at most 32,768 characters.
_CAUSE_MAX = 32_768

_environment = read_environment(PlanEnvironment)
_bus = Bus(events_client(), _environment.bus)
_store = Store(s3_client(), _environment.bucket)
_alarms = Timers(
    scheduler_client(), _environment.timer_function_arn, _environment.timer_role_arn, _environment.job_prefix
)
_queue = run_queue(_store, Tokens(stepfunctions_client()), _environment.max_concurrent_replicas)
_place = Place(
    bucket=_environment.bucket,
    role_arn=_environment.role_arn,
    job_prefix=_environment.job_prefix,
    package_uri=_environment.package_uri,
)
_defaults = StackDefaults.from_json(_environment.defaults, "MUSTER_DEFAULTS")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """The run and its ranks; or, for a spec that cannot be run, the error in the user's own terms."""
    request = read_event(PlanRequest, event)
    logger.append_keys(run_id=request.execution_name)
    try:
        plan = make_plan(_store, _place, _defaults, request, _environment.max_concurrent_replicas)
    except (SpecError, RunNameTakenError) as error:
        logger.warning("refused", extra={"error": str(error)})
        count("RunRefused")
        _bus.emit(refusal(request.execution_arn, error))
        return {"accepted": False, "queued": False, "error": error.code, "cause": str(error)[:_CAUSE_MAX]}
    # The workflow comes back here when the run's turn has come.
    if _queue is not None and not _queue.is_admitted(plan.execution_arn):
        return {"accepted": True, "queued": True, "run": plan.run}
    logger.info("planned", extra={"replicas": plan.spec.replicas, "plan": plan.digest})
    count("RunStarted")
    tell_of_start(_bus, plan)
    _alarms.set(plan.run, plan.spec.timers())
    return {
        "accepted": True,
        "queued": False,
        "run": plan.run,
        "ranks": list(range(plan.spec.replicas)),
        # The workflow gives each rank its slot: CreateTrainingJob is called at the account's pace, by nobody's order.
        "launch": {"from": clock.now(), "per_second": _environment.launches_per_second},
    }
