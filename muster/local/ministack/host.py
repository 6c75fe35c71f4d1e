"""Calls of MiniStack's services from the threads of the service that has them as its host."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ministack.core import responses
from ministack.services import cloudwatch_logs, eventbridge

from muster.local.ministack import object_lifecycle
from muster.local.ministack.partition_source import partition_of

_T = TypeVar("_T")


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


class Host:
    """In-process calls, made on the event loop that serves requests.

    MiniStack's handlers expect that: they run one at a time and share plain dictionaries.
    """

    def __init__(self, account: Account, loop: asyncio.AbstractEventLoop) -> None:
        self.account = account
        self._loop = loop

    def put_event(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> None:
        """Put an event on the default bus, `aws.*` sources allowed."""
        entry = {
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail),
            "Resources": [resource],
        }
        self._call(lambda: eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True))

    def expire_objects(self, now: datetime) -> list[str]:
        """Let the lifecycle rules of all buckets act as at `now`; what is gone, as `bucket/key`.

        Raises:
            UnsupportedRuleError: there is a rule that cannot be carried out here.
        """
        return self._call(lambda: object_lifecycle.expire(now))

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
            with responses.request_scope(self.account.account_id, self.account.region):
                return function()

        # A fresh context: a request that is being served at the same time must not pass its account or region on.
        return contextvars.Context().run(asyncio.run_coroutine_threadsafe, scoped(), self._loop).result()
