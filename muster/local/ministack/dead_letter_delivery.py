"""The dead letters of functions as Lambda sends them, also of functions in a template.

MiniStack sends the record of a destination for failures, which names the function. On AWS a dead-letter queue gets the
event as it is. Attributes say what was wrong, and none of them says which function it was.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ministack.core import iam_evaluator
from ministack.services import lambda_svc, sqs
from ministack.services.cloudformation import provisioners

_FUNCTION_FAILED = "200"  # Lambda: ErrorCode is the HTTP status of the invocation, which succeeded
_MESSAGE_BYTES_MAX = 1_024  # Lambda: ErrorMessage is cut to 1 KB


def install() -> None:
    """Send the events that functions failed to handle to their dead-letter queues.

    MiniStack's CloudFormation leaves the property DeadLetterConfig of AWS::Lambda::Function out.
    """
    lambda_svc._route_async_failure = partial(_send, lambda_svc._route_async_failure)
    handlers = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    for operation, properties in (("create", 1), ("update", 2)):
        handlers[operation] = partial(_provision, handlers[operation], properties)


def _provision(provision: Callable[..., Any], properties: int, /, *arguments: Any, **options: Any) -> Any:
    """Let a function that is provisioned keep its DeadLetterConfig; `properties`: which argument has the new ones."""
    found = provision(*arguments, **options)
    config = lambda_svc._functions[found[0]]["config"]
    wanted = arguments[properties].get("DeadLetterConfig")
    if wanted:
        config["DeadLetterConfig"] = wanted
    else:
        config.pop("DeadLetterConfig", None)
    return found


def _send(
    route: Callable[..., None], target: str, function: str, event: dict[str, Any], result: dict[str, Any]
) -> None:
    if sqs._queue_by_arn(target) is None or not _is_dead_letter_queue(target, function):
        route(target, function, event, result)
        return
    message = {"MessageBody": json.dumps(event), "MessageAttributes": _attributes(result)}
    # A queue's policy may ask for TLS, by which Lambda sends.
    iam_evaluator.pin_request_origin("127.0.0.1", secure_transport=True)
    sqs._act_send_message(message, target.rpartition(":")[2])


def _is_dead_letter_queue(target: str, function: str) -> bool:
    """Whether `target` is the function's dead-letter queue, and no destination for its failures."""
    record = lambda_svc._functions.get(function) or {}
    config = record.get("config") or {}
    return (config.get("DeadLetterConfig") or {}).get("TargetArn") == target


def _attributes(result: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    body = result.get("body")
    found = body.get("errorMessage") if isinstance(body, dict) else None
    message = str(found or "Unhandled").encode()[:_MESSAGE_BYTES_MAX].decode(errors="ignore")
    return {
        "RequestID": {"DataType": "String", "StringValue": str(uuid.uuid4())},
        "ErrorCode": {"DataType": "Number", "StringValue": _FUNCTION_FAILED},
        "ErrorMessage": {"DataType": "String", "StringValue": message},
    }
