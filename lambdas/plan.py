"""Plan: the first task of a run."""

from __future__ import annotations

from pathlib import Path

from muster.contract.errors import RunNameTakenError, SpecError
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.rank_spec import uses_cluster
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.retry_budget import PLACES_REARM_SECONDS, REARM_SECONDS
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.source_delivery import PACKAGE_FILE
from muster.control.aws.aws_errors import outages_named
from muster.control.aws.timer_schedules import Timers
from muster.control.control_plane import ControlPlane
from muster.control.plan import Deployment, PlanRequest, make_plan
from muster.control.replica_package import ReplicaPackage
from muster.control.reporting.announcements import announce_refusal, announce_run_started
from muster.control.runtime import clock
from muster.control.runtime.function import count, imported, logger, metrics, read_environment
from muster.control.runtime.function_settings import PlanEnvironment
from muster.control.seat_keeper import seat_keeper

# Step Functions: a Fail state's cause has at most 32,768 characters.
_CAUSE_MAX = 32_768

_settings = read_environment(PlanEnvironment)
_plane = ControlPlane.from_environment("s3", "stepfunctions", "events", "scheduler", settings=_settings)
_timers = Timers(_plane.clients.scheduler, _settings.timer_function_arn, _settings.timer_role_arn, _settings.job_prefix)
_deployment = Deployment(
    Place(bucket=_settings.bucket, role_arn=_settings.replica_role_arn, job_prefix=_settings.job_prefix),
    StackDefaults.from_json(_settings.defaults, "MUSTER_DEFAULTS"),
    ReplicaPackage(Path(__file__).parents[1] / PACKAGE_FILE),
    _settings.pod_role_arn,
)


def _launch(plan: Plan) -> dict[str, str | int]:
    """When and how fast the replicas are launched, and for runs elsewhere how often they are re-armed."""
    launch: dict[str, str | int] = {"from": clock.now(), "per_second": _settings.launches_per_second}
    if plan.spec.places is not None:
        return {**launch, "rearm_seconds": PLACES_REARM_SECONDS}
    return {**launch, "rearm_seconds": REARM_SECONDS} if uses_cluster(plan.spec) else launch


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
@outages_named()
def handler(event: dict[str, object], context: object) -> dict[str, object]:
    """The run and its ranks; for a spec that cannot be run, the error."""
    request = PlanRequest.model_validate(event)
    logger.append_keys(run_id=request.execution_name)
    try:
        plan = make_plan(_plane, _deployment, request)
    except (SpecError, RunNameTakenError) as error:
        logger.warning("refused", extra={"error": str(error)})
        count("RunRefused")
        announce_refusal(_plane.bus, request.execution_arn, error)
        return {"accepted": False, "queued": False, "error": error.code, "cause": str(error)[:_CAUSE_MAX]}
    # The workflow calls this function again once the run is admitted.
    if _plane.queue is not None and _plane.queue.must_wait(plan.run, plan.execution_arn):
        return {"accepted": True, "queued": True, "run": plan.run}
    logger.info("planned", extra={"replicas": plan.spec.replicas, "plan": plan.digest})
    for remark in (_deployment.defaults.access or ReplicaAccess()).remarks(plan.spec, _deployment.place.bucket):
        logger.warning("a replica may lack a right", extra={"remark": remark})
    count("RunStarted")
    announce_run_started(_plane.bus, plan)
    _timers.set(plan.run, plan.spec.timers())
    if (seats := seat_keeper(plan.spec)) is not None and _settings.scale_function_arn is not None:
        seats.schedule(_timers, plan, _settings.scale_function_arn)
    return {
        "accepted": True,
        "queued": False,
        "run": plan.run,
        "ranks": list(range(plan.spec.replicas)),
        # The workflow gives each rank a slot, so CreateTrainingJob is called at the rate that the account allows.
        "launch": _launch(plan),
    }


imported()
