"""What services refuse before they act, and MiniStack does not: names, lengths, texts that must be JSON.

Lengths and patterns are those of botocore's models; the rest is each service's documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote

from muster.local.counted_calls import Call
from muster.local.sagemaker.request_validation import refuse, violations
from muster.local.sagemaker.service_errors import ServiceError
from muster.local.service.http_request import EndpointRequest
from muster.local.service.recognition import document_of, object_of

_MODELS = {"states": "stepfunctions", "events": "events", "scheduler": "scheduler"}
# Step Functions, *Quotas*: what a name must not contain.
_FORBIDDEN_IN_NAMES = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]")
_EVENT_BYTES = 262_144  # PutEvents: all entries of a request
_TIME_BYTES = 14  # PutEvents, *Calculating event entry size*: of a Time that is given
_KEY_BYTES = 1024  # S3: a key in UTF-8
_SUBJECT = re.compile(r"[!-~][ -~]{0,99}")  # SNS Publish: ASCII, one line, at most 100 characters
_SCHEDULE = re.compile(
    r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)|rate\([1-9]\d* (minute|hour|day)s?\)|cron\(\S+( \S+){5}\)"
)


def _refuse(code: str, message: str, status: int = 400) -> NoReturn:
    raise ServiceError(code, message, status)


async def check(call: Call, request: EndpointRequest, account_id: str) -> None:
    """Refuse a request about what the account `account_id` owns that its service would refuse.

    Raises:
        ServiceError: what is wrong with it.
    """
    if call.service == "s3":
        _check_object(call, request, account_id)
    elif call.service == "sns" and call.operation == "Publish":
        _check_message(parse_qs((await request.body()).decode(), keep_blank_values=True))
    elif call.service in _MODELS and request.headers.get("x-amz-target"):
        _check_document(call, await document_of(request))
    elif call.service == "scheduler" and call.operation == "CreateSchedule":
        name = unquote(request.path.rsplit("/", 1)[-1])
        _check_document(call, {**await document_of(request), "Name": name})


def _check_document(call: Call, document: dict[str, Any]) -> None:
    refuse(violations(call.operation, document, _MODELS[call.service]))
    if special := _SPECIAL.get(call):
        special(document)


def _check_start(document: Mapping[str, Any]) -> None:
    name, given = document.get("name", ""), document.get("input", "{}")
    if _FORBIDDEN_IN_NAMES.search(name):
        _refuse("InvalidName", f"Invalid Name: '{name}'")
    try:
        json.loads(given)
    except ValueError as error:
        _refuse("InvalidExecutionInput", f"Invalid State Machine Execution Input: '{error}'")


def _check_arn(document: Mapping[str, Any]) -> None:
    arn = document["executionArn"]
    if not re.fullmatch(r"arn:[^:]+:states:[^:]+:\d{12}:(execution|express):.+", arn):
        _refuse("InvalidArn", f"Invalid Arn: '{arn}'")


def _check_events(document: Mapping[str, Any]) -> None:
    total = 0
    for entry in document["Entries"]:
        texts = [entry.get(name, "") for name in ("Source", "DetailType", "Detail")] + entry.get("Resources", [])
        total += sum(len(text.encode()) for text in texts) + (_TIME_BYTES if "Time" in entry else 0)
    if total > _EVENT_BYTES:
        _refuse("ValidationException", "Total size of the entries in the request is over the limit.")


def _check_schedule(document: Mapping[str, Any]) -> None:
    expression = document["ScheduleExpression"]
    if not _SCHEDULE.fullmatch(expression):
        _refuse("ValidationException", f"Invalid Schedule Expression {expression}.")


_SPECIAL: dict[Call, Callable[[Mapping[str, Any]], None]] = {
    Call("states", "StartExecution"): _check_start,
    Call("states", "DescribeExecution"): _check_arn,
    Call("states", "StopExecution"): _check_arn,
    Call("states", "GetExecutionHistory"): _check_arn,
    Call("events", "PutEvents"): _check_events,
    Call("scheduler", "CreateSchedule"): _check_schedule,
}


def _check_message(form: Mapping[str, list[str]]) -> None:
    if not form.get("Message", [""])[0]:
        _refuse("InvalidParameter", "Invalid parameter: Empty message")
    if "Subject" in form and not _SUBJECT.fullmatch(form["Subject"][0]):
        _refuse("InvalidParameter", "Invalid parameter: Subject")


def _check_object(call: Call, request: EndpointRequest, account_id: str) -> None:
    if request.headers.get("x-amz-expected-bucket-owner", account_id) != account_id:
        _refuse("AccessDenied", "Access Denied", 403)
    if len(object_of(request)[1].encode()) > _KEY_BYTES:
        _refuse("KeyTooLongError", "Your key is too long")
    if call.operation == "PutObject" and request.headers.get("if-none-match", "*") != "*":
        message = "A header you provided implies functionality that is not implemented"
        _refuse("NotImplemented", message, 501)
