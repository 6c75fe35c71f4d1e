"""Notify: send people a message about a run."""

from __future__ import annotations

from typing import Any

from muster.control.aws.clients import Clients
from muster.control.notify import notification
from muster.control.runtime.function import imported, logger, metrics, read_environment
from muster.control.runtime.function_settings import NotifyEnvironment

_settings = read_environment(NotifyEnvironment)
_clients = Clients.opened("sns")


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """The subject of the message."""
    message = notification(event["detail-type"], event["detail"])
    _clients.sns.publish(TopicArn=_settings.topic_arn, Subject=message.subject, Message=message.text)
    return {"subject": message.subject}


imported()
