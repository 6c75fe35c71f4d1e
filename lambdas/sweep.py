"""Sweep: called by a schedule; settles unsettled runs and stops orphans."""

from __future__ import annotations

from dataclasses import asdict

from muster.control.aws.executions import Executions
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import Context, count, imported, logger, metrics, read_environment, time_left
from muster.control.runtime.function_settings import ExecutionsEnvironment
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.sweep import SweepRequest, sweep

_settings = read_environment(ExecutionsEnvironment)
_plane = ControlPlane.from_environment("s3", "sagemaker", "stepfunctions", "events", settings=_settings)
_executions = Executions(_plane.clients.stepfunctions, _settings.state_machine_arn)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: Context) -> dict[str, object]:
    """The result of the sweep. Where orphans are left, Lambda calls the function again."""
    swept = sweep(_plane, _executions, SweepRequest.model_validate(event), _plane.allow(time_left(context)))
    found = asdict(swept)
    (logger.warning if any(found.values()) else logger.info)("swept", extra=found)
    count("OrphanJobsStopped", len(swept.stopped))
    count("RunsSettledLate", len(swept.settled))
    if swept.left:
        message = f"{len(swept.left)} orphans are left; call the function again"
        raise OutOfTimeError(message)
    return found


imported()
