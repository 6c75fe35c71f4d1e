"""Calls of MiniStack's services from the threads of the service that has them as its host."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from ministack.core import responses
from ministack.services import cloudwatch_logs, eventbridge, s3

from muster.local.ministack import object_lifecycle
from muster.local.ministack.partition_source import partition_of

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
Response = tuple[int, dict[str, str], bytes]
"""An answer of MiniStack: status, headers, body."""


def json_answer(document: Mapping[str, object]) -> Response:
    """The answer of a service that speaks JSON."""
    answer: Response = responses.json_response(document)
    return answer


def refusal(code: str, message: str) -> Response:
    """An error of a service that speaks JSON."""
    refused: Response = responses.error_response_json(code, message, 400)
    return refused


def is_json(text: str, kind: type = object) -> bool:
    """Whether a text is JSON, of this kind of value."""
    try:
        return isinstance(json.loads(text), kind)
    except ValueError:
        return False


@dataclass(frozen=True)
class Account:
    """The account and region that the embedded cloud stands for."""

    account_id: str
    region: str

    @property
    def partition(self) -> str:
        """The partition of the region: aws, aws-cn, aws-us-gov."""
        return partition_of(self.region)

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource in this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account_id}:{resource}"


def listed(found: Any) -> list[Any]:
    """What a policy has as one value or as a list of them: statements, resources, principals, values."""
    return found if isinstance(found, list) else [found]


def bucket_home(bucket: str) -> Account | None:
    """The owner of a bucket, and its region; None if no account has it: the names of buckets are global."""
    owner = s3._bucket_owner_account(bucket)
    if owner is None:
        return None
    record = s3._buckets.get_scoped(owner, None, bucket)
    return Account(owner, record.get("region") or os.environ["MINISTACK_REGION"])


def object_size(bucket: str, key: str) -> int:
    """The size of the newest version of an object; 0 if there is none."""
    home = bucket_home(bucket)
    record = s3._buckets.get_scoped(home.account_id, None, bucket) if home else None
    found = (record or {"objects": {}})["objects"].get(key)
    return int(found["size"]) if found else 0


class Host:
    """In-process calls, made on the event loop that serves requests.

    MiniStack's handlers expect that: they run one at a time and share plain dictionaries.
    """

    def __init__(self, account: Account, loop: asyncio.AbstractEventLoop) -> None:
        self.account = account
        self._loop = loop

    def put_event(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> None:
        """Put an event on the default bus, `aws.*` sources allowed."""
        self._put_event(source, detail_type, detail, resource).result()

    def post_event(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> None:
        """The same without waiting for it, so that the event loop may do it, too."""
        self._put_event(source, detail_type, detail, resource).add_done_callback(_log_failure)

    def _put_event(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> Future[object]:
        entry = {
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "Resources": [resource],
        }
        return self._begin(lambda: eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True))

    def expire_objects(self, now: datetime) -> list[str]:
        """Let the lifecycle rules of all buckets act as at `now`; what is gone, as `bucket/key`.

        Raises:
            UnsupportedRuleError: there is a rule that cannot be carried out here.
        """

        def expire() -> list[str]:
            gone = []
            for owner in {owner for owner, _ in s3._buckets.to_dict()}:
                with responses.request_scope(owner, self.account.region):
                    gone += object_lifecycle.expire(now)
            return sorted(gone)

        return self._call(expire)

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
        return self._begin(function).result()

    def _begin(self, function: Callable[[], _T]) -> Future[_T]:
        async def scoped() -> _T:
            with responses.request_scope(self.account.account_id, self.account.region):
                return function()

        # A fresh context: a request that is being served at the same time must not pass its account or region on.
        return contextvars.Context().run(asyncio.run_coroutine_threadsafe, scoped(), self._loop)


def _log_failure(call: Future[object]) -> None:
    if error := call.exception():
        _log.error("An event was not sent", exc_info=error)
