"""Calls of one cluster's Kubernetes API: a token that is renewed, retries, and answers as JSON documents."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from muster.control.aws.aws_errors import patiently
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.options.hyperpod.contract.cluster_token import SECONDS_VALID
from muster.options.hyperpod.control.cluster_errors import (
    ClusterConflictError,
    ClusterNotFoundError,
    ClusterRefusedError,
    ClusterUnauthorizedError,
    ClusterUnavailableError,
)
from muster.options.hyperpod.control.cluster_https import HttpAnswer, Transport

Json = dict[str, Any]

TRIES = 6
"""Of a call whose caller has no patience of its own, as for the clients of AWS."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 20.0
_IMPATIENT_SECONDS = 5.0
"""The longest pause of a call whose caller has no patience of its own."""
_PATIENCE_SECONDS = 25.0
"""After that such a call is not tried again: an API that takes requests and never answers costs 10 seconds each time,
and a function of a minute must be left the time to say so."""
_UNAUTHORIZED = 401
# EKS also answers 401 while STS throttles it, which it asks who calls.
_RETRIED = {_UNAUTHORIZED, 429, 500, 502, 503, 504}
_REFUSALS = {404: ClusterNotFoundError, 409: ClusterConflictError}
_PAGE = 100
_PAGES_MAX = 100  # of one list: 10,000 replicas
_MESSAGE_MAX = 2_048
_NO_TOKEN = ("", 0.0)
"""A token, and when another one is made."""


class Connection(NamedTuple):
    """The way to an API, and where that is, in words."""

    transport: Transport
    place: str


class KubernetesApi:
    """The API of one cluster. Safe to use by several threads."""

    def __init__(self, cluster: str, connect: Callable[[], Connection], token: Callable[[], str]) -> None:
        """`connect` looks up where the API is, `token` makes a new token; `cluster` is the name in messages."""
        self.cluster = cluster
        self._connect = connect
        self._connection: Connection | None = None
        self._new_token = token
        self._token = _NO_TOKEN

    def get(self, path: str, budget: TimeBudget, **query: str) -> Json:
        """An object.

        Raises:
            ClusterRefusedError: the API refused; a ClusterNotFoundError where there is no such object.
            ClusterUnavailableError: it did not answer, or failed in passing, until the last try.
            ClusterUnauthorizedError: in the last try it did not know the caller.
        """
        return self._call("GET", _with_query(path, query), None, budget)

    def create(self, path: str, document: Mapping[str, object], budget: TimeBudget, **query: str) -> Json:
        """Create an object; errors as for `get`. A ClusterConflictError: an earlier try may have made it."""
        return self._call("POST", _with_query(path, query), json.dumps(document).encode(), budget)

    def delete(self, path: str, options: Mapping[str, object], budget: TimeBudget) -> None:
        """Delete an object; errors as for `get`."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        self._call("DELETE", path, json.dumps(body).encode(), budget)

    def list(self, path: str, budget: TimeBudget, **query: str) -> Iterator[Json]:
        """The objects of a list, page by page; errors as for `get`. A list that expires meanwhile begins anew."""
        more, seen = "", set[str]()
        for _ in range(_PAGES_MAX):
            page = {**query, "limit": str(_PAGE), **({"continue": more} if more else {})}
            try:
                found = self.get(path, budget, **page)
            except ClusterRefusedError as refused:
                # 410: the continue token has expired.
                if refused.status != 410 or not more:
                    raise
                more = ""
                continue
            for item in found.get("items") or []:
                name = str(item.get("metadata", {}).get("uid") or item.get("metadata", {}).get("name"))
                if name not in seen:
                    seen.add(name)
                    yield item
            more = str(found.get("metadata", {}).get("continue") or "")
            if not more:
                return

    def _call(self, method: str, path: str, body: bytes | None, budget: TimeBudget) -> Json:
        tried, longest, renewed = 0, _FIRST_PAUSE_SECONDS, False
        until = clock.monotonic() + _PATIENCE_SECONDS
        while True:
            tried += 1
            connection = self._connected(budget)
            token = self._valid_token()
            try:
                answer = connection.transport.send(method, path, self._headers(token, body), body)
            except OSError as error:
                # The cluster may be gone, or may have been made anew: the next try looks it up.
                self._connection = None
                status, wait, problem = 0, None, str(error)
            else:
                status = answer.status
                if status == _UNAUTHORIZED and not renewed:
                    # The token may have expired before its time, or its session ended.
                    renewed, self._token = True, _NO_TOKEN
                    continue
                if status not in _RETRIED:
                    return self._read(method, path, answer)
                wait, problem = _retry_after(answer), f"{status} {_status(answer)[1]}"
            if budget.is_spent and (tried >= TRIES or clock.monotonic() >= until):
                where = f"The API of {self.cluster} ({connection.place})"
                message = f"{where} does not answer {method} {_bare(path)}: {problem}"
                raise ClusterUnauthorizedError(message) if status == _UNAUTHORIZED else ClusterUnavailableError(message)
            pause = max(random.uniform(0, longest), wait or 0.0)  # noqa: S311 - jitter
            clock.sleep(min(pause, _IMPATIENT_SECONDS if budget.is_spent else budget.remaining))
            longest = min(2 * longest, _LONGEST_PAUSE_SECONDS)

    def _headers(self, token: str, body: bytes | None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "muster"}
        return {**headers, "Content-Type": "application/json"} if body is not None else headers

    def _connected(self, budget: TimeBudget) -> Connection:
        self._connection = found = self._connection or patiently(self._connect, budget)
        return found

    def _valid_token(self) -> str:
        now = clock.monotonic()
        if now >= self._token[1]:
            self._token = self._new_token(), now + SECONDS_VALID
        return self._token[0]

    def _read(self, method: str, path: str, answer: HttpAnswer) -> Json:
        if answer.status >= 300:
            reason, message = _status(answer)
            refusal = _REFUSALS.get(answer.status, ClusterRefusedError)
            raise refusal(self.cluster, f"{method} {_bare(path)}", answer.status, reason, message)
        if (found := _document(answer)) is None:
            message = f"The cluster {self.cluster} answered {method} {_bare(path)} without a JSON object"
            raise ClusterUnavailableError(message)
        return found


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _retry_after(answer: HttpAnswer) -> float | None:
    """The seconds that the API asks to wait."""
    text = answer.headers.get("retry-after", "")
    return float(min(int(text), 60)) if text.isascii() and text.isdecimal() and len(text) <= 4 else None


def _document(answer: HttpAnswer) -> Json | None:
    """The JSON object of an answer; None where there is none."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _status(answer: HttpAnswer) -> tuple[str, str]:
    """Reason and message of an error: those of the Status object, or nothing where there is none."""
    found = _document(answer) or {}
    reason, message = found.get("reason"), found.get("message")
    return str(reason or "")[:64], " ".join(str(message or "").split())[:_MESSAGE_MAX]
