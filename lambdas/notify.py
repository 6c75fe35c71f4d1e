"""Notify: tells people of the ends of runs, in words."""

from __future__ import annotations

from typing import Any

from muster.control.aws.clients import sns_client
from muster.control.notifications import notice
from muster.control.runtime.function import logger, metrics, read_environment
from muster.control.runtime.function_settings import NotifyEnvironment

_environment = read_environment(NotifyEnvironment)
_sns = sns_client()


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: object) -> dict[str, str]:
    """The subject of what was sent."""
    told = notice(event["detail-type"], event["detail"])
    _sns.publish(TopicArn=_environment.topic_arn, Subject=told.subject, Message=told.text)
    return {"subject": told.subject}
