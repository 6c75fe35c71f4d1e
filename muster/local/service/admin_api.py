"""The service's own interface under `/_muster/`: faults, call counts, status. JSON, behind a bearer token.

| request | answer |
|---|---|
| `GET /_muster/status` | running jobs, and those of clusters |
| `GET /_muster/faults`, `POST` (a fault), `DELETE`, `DELETE /_muster/faults/ID` | the faults |
| `POST /_muster/clock` (a number of seconds) | lifecycle rules act as if so much more time had passed |
| `GET /_muster/rates`, `PUT` (a list of rates), `DELETE` | the rates of calls |
| `GET /_muster/calls`, `DELETE` | calls counted by service, operation and caller |
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from muster.local.call_rates import CALL_RATES
from muster.local.counted_calls import CallLog
from muster.local.faults import FAULT
from muster.local.ministack.object_lifecycle import UnsupportedRuleError
from muster.local.service.fault_book import FaultBook
from muster.local.service.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from muster.local.ministack.host import Host
    from muster.local.service.option_services import Hosted

PREFIX = "/_muster"
_SECONDS: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(gt=0)])  # the clock never goes back


@dataclass(frozen=True)
class Books:
    """What the service knows of calls: the faults that wait for them, how many there were, how many there may be."""

    faults: FaultBook
    calls: CallLog
    rates: RateLimiter


class AdminApi:
    """An ASGI application for everything under the prefix."""

    def __init__(
        self,
        token: str,
        host: Host,
        running: Callable[[], list[str]],
        books: Books,
        hosted: Sequence[Hosted] = (),
    ) -> None:
        """`running` gives the training jobs that have not ended; `hosted`: the services beside training."""
        self._token = token
        self._host = host
        self._running = running
        self._cluster_jobs = [one.running for one in hosted]
        self._ahead = timedelta()
        self._books = books
        routes = [
            Route("/status", self._status),
            Route("/faults", _telling(books.faults.report)),
            Route("/faults", self._add_fault, methods=["POST"]),
            Route("/faults", _doing(books.faults.clear), methods=["DELETE"]),
            Route("/faults/{identifier:int}", self._remove_fault, methods=["DELETE"]),
            Route("/clock", self._advance_clock, methods=["POST"]),
            Route("/rates", _telling(books.rates.report)),
            Route("/rates", self._set_rates, methods=["PUT"]),
            Route("/rates", _doing(books.rates.reset), methods=["DELETE"]),
            Route("/calls", _telling(books.calls.report)),
            Route("/calls", _doing(books.calls.reset), methods=["DELETE"]),
            *(route for one in hosted for route in one.routes),
        ]
        self._application = Starlette(
            routes=[Mount(PREFIX, routes=routes)],
            exception_handlers={HTTPException: _unknown, ValidationError: _invalid},
        )

    def owns(self, path: str) -> bool:
        """Whether a request for `path` is for this interface."""
        return path.startswith(f"{PREFIX}/")

    def knows(self, token: str) -> bool:
        """Whether this is the admin token."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        given = Request(scope).headers.get("authorization", "")
        if self.knows(given.removeprefix("Bearer ")):
            await self._application(scope, receive, send)
        else:
            refusal = JSONResponse({"error": "the admin token of local.json is needed"}, 401)
            await refusal(scope, receive, send)

    async def _status(self, _request: Request) -> Response:
        cluster_jobs = [job for running in self._cluster_jobs for job in running()]
        return JSONResponse({"running_jobs": self._running(), "cluster_jobs": cluster_jobs})

    async def _add_fault(self, request: Request) -> Response:
        fault = FAULT.validate_json(await request.body())
        return JSONResponse(self._books.faults.add(fault).model_dump(mode="json"), 201)

    async def _remove_fault(self, request: Request) -> Response:
        if not self._books.faults.remove(request.path_params["identifier"]):
            raise HTTPException(404)
        return JSONResponse({})

    async def _advance_clock(self, request: Request) -> Response:
        self._ahead += timedelta(seconds=_SECONDS.validate_json(await request.body()))
        now = datetime.now(UTC) + self._ahead
        try:
            # The host's calls are made on this loop: waiting for one here would wait for ever.
            gone = await asyncio.to_thread(self._host.expire_objects, now)
        except UnsupportedRuleError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"gone": gone})

    async def _set_rates(self, request: Request) -> Response:
        self._books.rates.set(CALL_RATES.validate_json(await request.body()))
        return JSONResponse({})


_Endpoint = Callable[[Request], Awaitable[Response]]


def _telling(report: Callable[[], Sequence[BaseModel]]) -> _Endpoint:
    async def answer(_request: Request) -> Response:
        return JSONResponse([one.model_dump(mode="json") for one in report()])

    return answer


def _doing(act: Callable[[], None]) -> _Endpoint:
    async def answer(_request: Request) -> Response:
        act()
        return JSONResponse({})

    return answer


async def _unknown(request: Request, _error: Exception) -> Response:
    return JSONResponse({"error": f"there is no {request.method} {request.url.path}"}, 404)


async def _invalid(_request: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, ValidationError) else []
    lines = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
    return JSONResponse({"error": "; ".join(lines)}, 400)
