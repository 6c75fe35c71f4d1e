"""MiniStack brought closer to AWS where the stack would notice the difference.

Written against MiniStack 1.5.33; tests/unit/local/test_local_ministack.py lists what to check on an upgrade. MiniStack
reads its configuration from the environment while it is imported: nothing imports this package before that is set.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ministack.core import iam_actions, lambda_runtime
from ministack.services import cloudwatch_logs, eventbridge, lambda_svc, s3, scheduler, sns

from muster.local.faults import LostNotice
from muster.local.ministack import (
    arn_checks,
    dead_letter_delivery,
    function_updates,
    object_lifecycle,
    policy_simulation,
    policy_variables,
)
from muster.local.ministack.code_cache import CodeCache
from muster.local.ministack.function_processes import FunctionProcesses
from muster.local.ministack.host import Account, Response, is_json, json_answer
from muster.local.ministack.state_machines import StateMachines
from muster.local.service.fault_book import FaultBook
from muster.local.service.option_services import option_services

if TYPE_CHECKING:
    from mypy_boto3_logs.type_defs import FilteredLogEventTypeDef, FilterLogEventsRequestTypeDef

# An invocation that waits this long for a free slot is refused, as on AWS.
_SLOT_WAIT_SECONDS = 120.0
_LOG_PAGE = 10_000  # FilterLogEvents: events in an answer
# Between two checks of EventBridge Scheduler's clock: MiniStack's own ten seconds would be the longest wait of a test.
_TICK_SECONDS = 0.5

_TAGS = (".TagResource", ".UntagResource", ".ListTagsForResource")  # of a log group: its ARN is the resource

_processes = FunctionProcesses()
_slot_freed = threading.Condition()


def adapt(code_cache: Path, account: Account) -> None:
    """Adapt MiniStack. Call it once, before anything is served."""
    lambda_runtime.zipfile = CodeCache(code_cache).zipfile_module()
    lambda_runtime.subprocess = _processes.subprocess_module()
    policy_variables.install()
    arn_checks.install(account)
    StateMachines(account).install()
    function_updates.install()
    dead_letter_delivery.install()
    eventbridge._dispatch_to_lambda = _dispatch_with_retries
    sns._lambda_svc = _delivery_with_retries()
    eventbridge._put_events = partial(_put_events, eventbridge._put_events)
    s3.now_iso = partial(_now_iso, s3.now_iso)
    object_lifecycle.install()
    lambda_svc._acquire_execution_slot = partial(_acquire_slot, lambda_svc._acquire_execution_slot)
    lambda_svc._release_execution_slot = partial(_release_slot, lambda_svc._release_execution_slot)
    scheduler._SCHEDULE_TICK_INTERVAL = _TICK_SECONDS
    iam_actions._s3_object_context = partial(_s3_object_context, iam_actions._s3_object_context)
    iam_actions.extract_resource_arn = partial(_extract_resource_arn, iam_actions.extract_resource_arn)
    policy_simulation.install()
    for service in option_services().values():
        service.adapt(account)
    cloudwatch_logs._filter_log_events = partial(_filter_log_events, cloudwatch_logs._filter_log_events)
    cloudwatch_logs._compile_filter_pattern = partial(_compile_pattern, cloudwatch_logs._compile_filter_pattern)


def _dispatch_with_retries(arn: str, payload: str) -> None:
    """Invoke a rule's function as any asynchronous invocation: MiniStack tries once, and knows no dead letters."""
    function, config, _ = lambda_svc._get_func_record_for_ref(arn)
    if function and config:
        record = lambda_svc._execution_record_for_config(function, config)
        lambda_svc.invoke_async_with_retry(record, json.loads(payload))


def _delivery_with_retries() -> SimpleNamespace:
    """What SNS needs of Lambda, with the invocation of a subscribed function tried again like any other."""
    return SimpleNamespace(
        _get_func_record_for_ref=lambda_svc._get_func_record_for_ref,
        _execution_record_for_config=lambda_svc._execution_record_for_config,
        _execute_function_with_config_scope=lambda_svc.invoke_async_with_retry,
    )


def _put_events(put_events: Callable[..., Response], request: Mapping[str, Any], **options: object) -> Response:
    """Refuse the entries of PutEvents whose detail is no JSON object; the others are taken."""
    entries = list(request.get("Entries", []))
    sound = [is_json(entry.get("Detail", "{}"), dict) for entry in entries]
    if all(sound):
        return put_events(request, **options)
    taken = [entry for entry, fine in zip(entries, sound, strict=True) if fine]
    status, headers, body = put_events({**request, "Entries": taken}, **options)
    if status != 200:
        return status, headers, body
    answers = iter(json.loads(body)["Entries"])
    refused = {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    merged = [next(answers) if fine else refused for fine in sound]
    failed = sum("ErrorCode" in answer for answer in merged)
    return json_answer({"FailedEntryCount": failed, "Entries": merged})


def _now_iso(now: Callable[[], str]) -> str:
    """S3's times: MiniStack gives a listing milliseconds."""
    return re.sub(r"\.\d+", ".000", now())


def _extract_resource_arn(extract: Callable[..., str], service: str, *request: Any) -> str:
    """The resource of a call on a log group is its streams, or the one that it names (as AWS's refusals say).

    MiniStack checks the log group alone, so that a right to one stream would be none.
    """
    found = extract(service, *request)
    _method, _path, headers, body, *_ = request
    if service != "logs" or found == "*" or headers.get("x-amz-target", "").endswith(_TAGS):
        return found
    return f"{found}:log-stream:{json.loads(body).get('logStreamName', '')}"


def _filter_log_events(scan: Callable[..., Response], request: FilterLogEventsRequestTypeDef) -> Response:
    """FilterLogEvents by a prefix of the streams' names, and page after page.

    MiniStack ignores `logStreamNamePrefix`, gives no token where there is more than a page, and no event ids to what
    its functions write.
    """
    since, last = _log_place(request.get("nextToken"))
    narrowed: FilterLogEventsRequestTypeDef = {**request, "limit": _LOG_PAGE}
    prefix, group = request.get("logStreamNamePrefix"), request.get("logGroupName")
    if prefix and group in cloudwatch_logs._log_groups:
        streams = cloudwatch_logs._log_groups[group]["streams"]
        narrowed["logStreamNames"] = [name for name in streams if name.startswith(prefix)] or [prefix]
    if last:
        narrowed["startTime"] = since
    status, headers, body = scan(narrowed)
    if status != 200:
        return status, headers, body
    found = _identified(json.loads(body)["events"])
    place = next((index for index, event in enumerate(found) if event["eventId"] == last), -1)
    page = found[place + 1 :][: request.get("limit", _LOG_PAGE)]
    answer: dict[str, object] = {"events": page, "searchedLogStreams": []}
    if page and (len(found) == _LOG_PAGE or len(page) < len(found) - place - 1):
        answer["nextToken"] = f"{page[-1]['timestamp']}/{page[-1]['eventId']}"
    return int(status), headers, json.dumps(answer).encode()


def _identified(events: list[FilteredLogEventTypeDef]) -> list[FilteredLogEventTypeDef]:
    """The events, each with an id that is the same in every answer to a request that starts before the event."""
    counts: Counter[str] = Counter()
    for event in events:
        place = f"{event['logStreamName']}/{event['timestamp']}"
        event.setdefault("eventId", f"{place}/{counts[place]}")
        counts[place] += 1
    return events


def _log_place(token: str | None) -> tuple[int, str]:
    """Timestamp and id of the last event of a page, from the token of that page."""
    since, _, last = (token or "0/").partition("/")
    return int(since), last


def _compile_pattern(compiled: Callable[[str], Callable[[str], bool]], raw: str) -> Callable[[str], bool]:
    """FilterLogEvents with a pattern between per cent signs, which MiniStack takes for words."""
    text = raw.strip()
    if len(text) < 3 or not (text.startswith("%") and text.endswith("%")):
        return compiled(raw)
    expression = re.compile(text[1:-1])
    return lambda message: expression.search(message) is not None


_Slot = tuple[str | None, str | None]


def _acquire_slot(acquire: Callable[..., _Slot], function: object, config: object) -> _Slot:
    """Queue invocations above the concurrency limit.

    MiniStack refuses them, and its EventBridge then drops the event; on AWS an asynchronous
    invocation is queued until there is room.
    """
    deadline = time.monotonic() + _SLOT_WAIT_SECONDS
    with _slot_freed:
        while True:
            key, limit = acquire(function, config)
            if key is not None or not _slot_freed.wait(deadline - time.monotonic()):
                return key, limit


def _release_slot(release: Callable[[str | None], None], key: str | None) -> None:
    release(key)
    with _slot_freed:
        _slot_freed.notify_all()


def _s3_object_context(
    object_context: Callable[..., dict[str, object]],
    action: str,
    query: Mapping[str, object],
    path: str,
    headers: Mapping[str, str],
) -> dict[str, object]:
    """Give policies the keys of a write that MiniStack does not have.

    These are s3:if-none-match, s3:if-match, and s3:ObjectCreationOperation, which is false for a request that begins a
    multipart upload or sends a part of it.
    """
    found = object_context(action, query, path, headers)
    if action != "s3:PutObject":
        return found
    conditions = {name: headers[name] for name in ("if-none-match", "if-match") if headers.get(name)}
    creates = "uploads" not in query and "partNumber" not in query
    written = {f"s3:{name}": value for name, value in conditions.items()}
    return {**found, **written, "s3:ObjectCreationOperation": str(creates).lower()}


def stop_functions() -> None:
    """End the processes of all functions."""
    lambda_runtime.reset()
    _processes.end()


def lose_object_events(faults: FaultBook) -> None:
    """Let MiniStack lose those of S3's events that a fault names; the objects are there."""
    s3._fire_s3_event_async = partial(_fire, s3._fire_s3_event_async, faults)


def _fire(fire: Callable[..., Any], faults: FaultBook, /, *arguments: Any, **further: Any) -> Any:
    key = str(further["key"] if "key" in further else arguments[1])
    if faults.take(LostNotice, lambda fault: fnmatchcase(key, fault.key)) is not None:
        return None
    return fire(*arguments, **further)
