"""Start: called for an object in the inbox, for Run Requested on the bus, and by the stack's schedules."""

from __future__ import annotations

from muster.control.aws.executions import Executions
from muster.control.aws.inbox import Inbox
from muster.control.control_plane import ControlPlane
from muster.control.runtime.function import count, imported, logger, metrics, read_environment
from muster.control.runtime.function_settings import ExecutionsEnvironment
from muster.control.start import Started, Starter

_settings = read_environment(ExecutionsEnvironment)
_plane = ControlPlane.from_environment("s3", "stepfunctions", "events", settings=_settings)
_starter = Starter(
    Executions(_plane.clients.stepfunctions, _settings.state_machine_arn),
    Inbox(_plane.store),
    _plane.bus,
)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, object], context: object) -> dict[str, list[str]]:
    """The result of every request in the event. Lambda retries after an error."""
    outcomes = list(_starter.from_function_event(event))
    logger.info("runs requested", extra={"outcomes": outcomes})
    count("RunRefused", outcomes.count(Started.REFUSED))
    return {"outcomes": [outcome.value for outcome in outcomes]}


imported()
