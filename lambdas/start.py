"""Start: woken by an object in the inbox, by Run Requested on the bus, and by the stack's schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from muster.control.aws.bus import Bus
from muster.control.aws.clients import events_client, s3_client, stepfunctions_client
from muster.control.aws.executions import Executions
from muster.control.aws.inbox import Inbox
from muster.control.aws.store import Store
from muster.control.runtime.function import count, logger, metrics, read_environment, read_event
from muster.control.runtime.function_settings import ExecutionsEnvironment
from muster.control.start import Schedule, Started, Starter

_environment = read_environment(ExecutionsEnvironment)
_starter = Starter(
    Executions(stepfunctions_client(), _environment.state_machine_arn),
    Inbox(Store(s3_client(), _environment.bucket)),
    Bus(events_client(), _environment.bus),
)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, list[str]]:
    """What came of every wish in the event. An error makes Lambda deliver it again."""
    outcomes = list(_outcomes(event))
    logger.info("asked for runs", extra={"outcomes": outcomes})
    count("RunRefused", outcomes.count(Started.REFUSED))
    return {"outcomes": [outcome.value for outcome in outcomes]}


def _outcomes(event: dict[str, Any]) -> Iterator[Started]:
    if "schedule" in event:
        yield _starter.from_schedule(read_event(Schedule, event["schedule"]))
    elif "detail" in event:
        yield _starter.from_event(str(event["id"]), event["detail"])
    for notice in event.get("Records", []):
        # S3 sends a test without records when the bucket's notifications are set up.
        for record in json.loads(notice["Sns"]["Message"]).get("Records", []):
            found = record["s3"]["object"]
            yield _starter.from_inbox(unquote_plus(found["key"]), found["eTag"])
