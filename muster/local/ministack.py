"""MiniStack, hosted in this process. Everything private of it that we touch is touched here.

MiniStack reads its configuration from the environment while it is imported: set
`service_environment` first, import this module after. Written against MiniStack 1.5.33;
tests/unit/local/test_ministack.py says what to look at on an upgrade.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ministack.app
import ministack.core.iam_actions
import ministack.core.iam_evaluator
import ministack.core.lambda_runtime
import ministack.core.responses
import ministack.core.router
import ministack.core.sigv4
import ministack.services.cloudwatch_logs
import ministack.services.eventbridge
import ministack.services.iam
import ministack.services.lambda_svc
import ministack.services.scheduler
import ministack.services.stepfunctions
import ministack.services.sts

from muster.local.code_cache import CodeCache
from muster.local.http import Application, Request

_SESSION_SECONDS = 24 * 3600
# An invocation that waits this long for a free slot is refused, as on AWS.
_SLOT_WAIT_SECONDS = 120.0
_LOG_PAGE = 10_000  # FilterLogEvents: events in an answer
# Between two looks at the clock of EventBridge Scheduler: MiniStack's own ten seconds would be a test's longest wait.
_TICK_SECONDS = 0.5
# The names that MiniStack gives to failed authentications, and what a JSON service calls them.
_AUTHENTICATION_CODES = {
    "SignatureDoesNotMatch": "InvalidSignatureException",
    "MissingAuthenticationToken": "MissingAuthenticationTokenException",
}
_T = TypeVar("_T")
_Response = tuple[int, dict[str, str], bytes]

# MiniStack carries few types and no promise about any of them.
iam_actions: Any = ministack.core.iam_actions
iam_evaluator: Any = ministack.core.iam_evaluator
lambda_runtime: Any = ministack.core.lambda_runtime
responses: Any = ministack.core.responses
router: Any = ministack.core.router
sigv4: Any = ministack.core.sigv4
cloudwatch_logs: Any = ministack.services.cloudwatch_logs
eventbridge: Any = ministack.services.eventbridge
iam: Any = ministack.services.iam
lambda_svc: Any = ministack.services.lambda_svc
scheduler: Any = ministack.services.scheduler
stepfunctions: Any = ministack.services.stepfunctions
sts: Any = ministack.services.sts

application: Application = ministack.app.app


@dataclass(frozen=True)
class Scope:
    """The account and region that in-process calls act in."""

    account_id: str
    region: str


@dataclass(frozen=True)
class Refusal:
    """Why a call is not allowed: an AWS error code and message."""

    code: str
    message: str


@dataclass(frozen=True)
class RoleCredentials:
    """A role session's credentials."""

    access_key_id: str
    secret_access_key: str
    session_token: str

    def variables(self) -> dict[str, str]:
        """As environment variables."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_SESSION_TOKEN": self.session_token,
        }


def adapt(code_cache: Path) -> None:
    """Bring MiniStack closer to AWS where our stack would notice. Once, before it serves."""
    lambda_runtime.zipfile = CodeCache(code_cache).zipfile_module()
    _let_invocations_wait()
    scheduler._SCHEDULE_TICK_INTERVAL = _TICK_SECONDS
    stepfunctions._start_execution = _with_replayed_starts(stepfunctions._start_execution)
    iam_actions._s3_object_context = _with_write_conditions(iam_actions._s3_object_context)
    cloudwatch_logs._filter_log_events = _with_log_pages(cloudwatch_logs._filter_log_events)


def _with_log_pages(scan: Callable[[dict[str, Any]], _Response]) -> Callable[[dict[str, Any]], _Response]:
    """FilterLogEvents by a prefix of the streams' names, and page after page.

    MiniStack overlooks `logStreamNamePrefix`, gives no token where there is more than a page, and no identity to what
    its functions write.
    """

    def filter_log_events(request: dict[str, Any]) -> _Response:
        narrowed, (since, last) = dict(request), _log_place(request.get("nextToken"))
        prefix, group = request.get("logStreamNamePrefix"), request.get("logGroupName")
        if prefix and group in cloudwatch_logs._log_groups:
            streams = cloudwatch_logs._log_groups[group]["streams"]
            narrowed["logStreamNames"] = [name for name in streams if name.startswith(prefix)] or [prefix]
        if last:
            narrowed["startTime"] = since
        status, headers, body = scan({**narrowed, "limit": _LOG_PAGE})
        if status != 200:
            return status, headers, body
        found = _identified(json.loads(body)["events"])
        place = next((index for index, event in enumerate(found) if event["eventId"] == last), -1)
        page = found[place + 1 :][: request.get("limit", _LOG_PAGE)]
        answer: dict[str, Any] = {"events": page, "searchedLogStreams": []}
        if page and (len(found) == _LOG_PAGE or len(page) < len(found) - place - 1):
            answer["nextToken"] = f"{page[-1]['timestamp']}/{page[-1]['eventId']}"
        return int(status), headers, json.dumps(answer).encode()

    return filter_log_events


def _identified(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, each with an identity; equal for every request that begins no later than the event's moment."""
    counts: Counter[str] = Counter()
    for event in events:
        place = f"{event['logStreamName']}/{event['timestamp']}"
        event.setdefault("eventId", f"{place}/{counts[place]}")
        counts[place] += 1
    return events


def _log_place(token: str | None) -> tuple[int, str]:
    """Time and identity of the last event of a page, by the token that it gave."""
    since, _, last = (token or "0/").partition("/")
    return int(since), last


def _let_invocations_wait() -> None:
    """Make invocations above the concurrency limit wait for their turn.

    MiniStack refuses them, and its EventBridge then drops the event; on AWS an asynchronous
    invocation is queued until there is room.
    """
    freed = threading.Condition()
    acquire, release = lambda_svc._acquire_execution_slot, lambda_svc._release_execution_slot

    def waiting(func: dict[str, Any], config: dict[str, Any]) -> tuple[str | None, str | None]:
        deadline = time.monotonic() + _SLOT_WAIT_SECONDS
        with freed:
            while True:
                key, limit = acquire(func, config)
                if key is not None or not freed.wait(deadline - time.monotonic()):
                    return key, limit

    def releasing(key: str | None) -> None:
        release(key)
        with freed:
            freed.notify_all()

    lambda_svc._acquire_execution_slot = waiting
    lambda_svc._release_execution_slot = releasing


def _with_replayed_starts(
    start_execution: Callable[[dict[str, Any]], _Response],
) -> Callable[[dict[str, Any]], _Response]:
    """Answer StartExecution of a running execution's name and input with that execution.

    MiniStack refuses every name that is taken; on AWS the call is idempotent while the execution runs.
    """

    def start(request: dict[str, Any]) -> _Response:
        status, headers, body = start_execution(request)
        if status != 400 or json.loads(body).get("__type") != "ExecutionAlreadyExists":
            return status, headers, body
        machine = str(request["stateMachineArn"]).replace(":stateMachine:", ":execution:")
        running = stepfunctions._executions.get(f"{machine}:{request['name']}")
        if not running or running["status"] != "RUNNING" or running["input"] != request.get("input", "{}"):
            return status, headers, body
        answer: _Response = responses.json_response(
            {"executionArn": running["executionArn"], "startDate": running["startDate"]}
        )
        return answer

    return start


def _with_write_conditions(object_context: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Let policies see s3:if-none-match and s3:if-match of a write: MiniStack obeys both and has no such keys."""

    def context(action: str, query: Mapping[str, Any], path: str, headers: Mapping[str, str]) -> dict[str, Any]:
        conditions = {name: headers[name] for name in ("if-none-match", "if-match") if headers.get(name)}
        written = {f"s3:{name}": value for name, value in conditions.items()} if action == "s3:PutObject" else {}
        return {**object_context(action, query, path, headers), **written}

    return context


def stop_functions() -> None:
    """End the processes of all functions."""
    lambda_runtime.reset()


# --- who calls ---------------------------------------------------------------------------------


def access_key_of(request: Request) -> str:
    """The access key that a request names, in its header or its query; empty when it names none."""
    return str(router.extract_access_key_id(request.headers, request.query))


def foreign_root_key(access_key: str) -> bool:
    """Whether MiniStack would take a key for root's that is not ours: `test` and bare account numbers."""
    return bool(access_key) and access_key != _root_key() and bool(iam_evaluator.is_root_access_key(access_key))


def is_root(access_key: str) -> bool:
    """Whether this is our root user's key."""
    return access_key == _root_key()


def _root_key() -> str:
    return os.environ["AWS_ACCESS_KEY_ID"]


async def root_signature_refusal(request: Request) -> Refusal | None:
    """Check the signature of a request made with the root key, which MiniStack trusts unseen."""
    presigned = "authorization" not in request.headers
    if presigned and "X-Amz-Signature" not in request.query:
        return Refusal(
            "InvalidRequest",
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
        )
    signature = (
        sigv4.parse_query_signature(request.query) if presigned else sigv4.parse_header_signature(request.headers)
    )
    if isinstance(signature, tuple):
        return Refusal(*signature)
    payload = request.headers.get("x-amz-content-sha256", "")
    # With a declared payload (UNSIGNED-PAYLOAD, STREAMING-...) or a presigned URL the body is no part of the signature.
    unsigned = presigned or payload.startswith(("UNSIGNED-PAYLOAD", "STREAMING-"))
    body = b"" if unsigned else await request.body()
    failure = sigv4.header_signature_failure(
        signature,
        os.environ["AWS_SECRET_ACCESS_KEY"],
        request.method,
        request.raw_path,
        request.query,
        request.headers,
        body,
        presigned=presigned,
    )
    return Refusal(_AUTHENTICATION_CODES.get(failure[0], failure[0]), failure[1]) if failure else None


def caller_of(access_key: str) -> tuple[str, str]:
    """Role (or `root`, `user/NAME`, `anonymous`) and session name behind an access key."""
    if is_root(access_key):
        return "root", ""
    session = sts._sessions.get(access_key)
    if session is not None:
        role, _, name = str(session["Arn"]).partition(":assumed-role/")[2].partition("/")
        return role, name
    for _, key, record in _user_keys():
        if key == access_key:
            return f"user/{record.get('UserName', '')}", ""
    return "anonymous", ""


def _user_keys() -> list[tuple[str, str, dict[str, Any]]]:
    return [(account, key, record) for (account, key), record in iam._access_keys.to_dict().items()]


# --- what callers and roles may do -------------------------------------------------------------


async def admit(request: Request, scope: Scope) -> None:
    """Make `request` the one whose caller `refusal_of` judges, in this task's context."""
    access_key = access_key_of(request)
    responses.set_request_account_id(iam_evaluator.find_iam_access_key_account(access_key) or access_key)
    responses.set_request_region(scope.region)
    client = (request.scope.get("client") or ("127.0.0.1",))[0]
    iam_evaluator.pin_request_origin(client, request.scope.get("scheme") == "https")
    iam_evaluator.pin_signed_request(request.method, request.raw_path, request.query, request.scope["headers"])
    iam_evaluator.pin_signed_body(await request.body())


def refusal_of(
    request: Request, scope: Scope, action: str, resource: str, context: Mapping[str, Any]
) -> Refusal | None:
    """Why the admitted caller may not do `action` on `resource`; None when it may.

    `context` are condition keys beyond the global ones. The signature is verified on the first call.
    """
    verdict = iam_evaluator.enforce(
        access_key_of(request),
        action,
        action.split(":", 1)[0],
        scope.region,
        resource_arn=resource,
        service_context=dict(context),
    )
    if verdict is None:
        return None
    if isinstance(verdict, iam_evaluator.AuthError):
        return Refusal(_AUTHENTICATION_CODES.get(verdict.code, verdict.code), verdict.message)
    message = iam_actions.identity_denial_message(action, verdict.principal_arn, resource, verdict.decision == "Deny")
    return Refusal("AccessDeniedException", message)


def role_admits(scope: Scope, role_arn: str, service: str, source_arn: str) -> bool:
    """Whether the role exists and its trust policy lets `service` assume it on behalf of `source_arn`."""
    role = iam._roles.get_scoped(role_arn.split(":")[4], None, role_arn.rsplit("/", 1)[-1])
    if role is None or role["Arn"] != role_arn:
        return False
    document = role["AssumeRolePolicyDocument"]
    policy = json.loads(document) if isinstance(document, str) else document
    statements = policy.get("Statement", [])
    context = iam_evaluator.EvalContext(
        principal_arn="",
        principal_type="Service",
        principal_account=scope.account_id,
        action="sts:AssumeRole",
        resource_arn=role_arn,
        region=scope.region,
        service_context={"aws:sourceaccount": scope.account_id, "aws:sourcearn": source_arn},
    )
    admitted = False
    for statement in [statements] if isinstance(statements, dict) else statements:
        actions = statement.get("Action", [])
        if (
            iam_evaluator._action_matches("sts:AssumeRole", [actions] if isinstance(actions, str) else actions, [])
            and iam_evaluator._service_principal_matches(statement.get("Principal"), service)
            and iam_evaluator._conditions_met(statement.get("Condition", {}), context)
        ):
            if statement["Effect"] == "Deny":
                return False
            admitted = True
    return admitted


def role_session(scope: Scope, role_arn: str, name: str) -> RoleCredentials:
    """A session of the role, as the service itself makes one for a job."""
    role_name = role_arn.rsplit("/", 1)[-1]
    credentials = RoleCredentials(
        access_key_id=f"ASIA{secrets.token_hex(8).upper()}",
        secret_access_key=secrets.token_urlsafe(30),
        session_token=secrets.token_urlsafe(120),
    )
    sts.register_session(
        credentials.access_key_id,
        {
            "Arn": f"arn:aws:sts::{scope.account_id}:assumed-role/{role_name}/{name}",
            "UserId": f"{role_name}:{name}",
            "AccountId": scope.account_id,
            "PrincipalType": "AssumedRole",
            "SecretAccessKey": credentials.secret_access_key,
            "SessionToken": credentials.session_token,
            "Expiration": time.time() + _SESSION_SECONDS,
        },
    )
    return credentials


def session_may(scope: Scope, credentials: RoleCredentials, action: str, resource: str) -> bool:
    """Whether the policies of a role session allow `action` on `resource`."""
    principal = iam_evaluator.resolve_principal(credentials.access_key_id, scope.account_id)
    if isinstance(principal, iam_evaluator.AuthError) or principal.policies is None:
        return False
    context = iam_evaluator.EvalContext(
        principal_arn=principal.arn,
        principal_type=principal.type,
        principal_account=principal.account,
        action=action,
        resource_arn=resource,
        region=scope.region,
        principal_keys=principal.keys,
    )
    return bool(iam_evaluator.evaluate(context, principal.policies, *principal.limits).decision == "Allow")


# --- what our service does through MiniStack's ---------------------------------------------------


class Host:
    """In-process calls of MiniStack's services from our threads, made on the loop that serves requests.

    Its handlers expect that: they run one at a time and share plain dictionaries.
    """

    def __init__(self, scope: Scope, loop: asyncio.AbstractEventLoop) -> None:
        self.scope = scope
        self._loop = loop

    def put_event(self, source: str, detail_type: str, detail: Mapping[str, Any], resource: str) -> None:
        """Put an event on the default bus, `aws.*` sources allowed."""
        entry = {
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "Resources": [resource],
        }
        self._call(lambda: eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True))

    def open_log_stream(self, group: str, stream: str) -> None:
        """Create a log stream, and its group when missing."""

        def create() -> None:
            cloudwatch_logs._create_log_group({"logGroupName": group})
            cloudwatch_logs._create_log_stream({"logGroupName": group, "logStreamName": stream})

        self._call(create)

    def put_log_events(self, group: str, stream: str, events: Sequence[tuple[int, str]]) -> None:
        """Append (epoch milliseconds, line) pairs, which must be in time order."""
        entries = [{"timestamp": timestamp, "message": line} for timestamp, line in events]
        request = {"logGroupName": group, "logStreamName": stream, "logEvents": entries}
        self._call(lambda: cloudwatch_logs._put_log_events(request))

    def _call(self, function: Callable[[], _T]) -> _T:
        async def scoped() -> _T:
            with responses.request_scope(self.scope.account_id, self.scope.region):
                return function()

        # A fresh context: nothing of a request that happens to be served may shine through.
        return contextvars.Context().run(asyncio.run_coroutine_threadsafe, scoped(), self._loop).result()
