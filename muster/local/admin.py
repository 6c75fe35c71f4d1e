"""The service's own interface under `/_muster/`: faults, call counts, status. JSON, behind a bearer token.

| request | answer |
|---|---|
| `GET /_muster/status` | endpoint and running jobs |
| `GET /_muster/faults`, `POST` (a fault), `DELETE`, `DELETE /_muster/faults/ID` | the fault book |
| `GET /_muster/calls`, `DELETE` | calls counted by service, operation and caller |
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from pydantic import ValidationError

from muster.local.calls import CallLog
from muster.local.faults import FAULT, FaultBook
from muster.local.http import Request, Send, respond_json

if TYPE_CHECKING:
    from muster.local.sagemaker.service import TrainingService

PREFIX = "/_muster/"


class Admin:
    """Answers what is asked under the prefix."""

    def __init__(self, token: str, training: TrainingService, faults: FaultBook, calls: CallLog) -> None:
        self._token = token
        self._training = training
        self._faults = faults
        self._calls = calls

    def owns(self, request: Request) -> bool:
        """Whether a request is for this interface."""
        return request.path.startswith(PREFIX)

    async def serve(self, request: Request, send: Send) -> None:
        """Answer one request."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            await respond_json(send, 401, {"error": "the admin token of local.json is needed"})
            return
        status, document = await self._route(request)
        await respond_json(send, status, document)

    async def _route(self, request: Request) -> tuple[int, object]:
        match request.method, request.path.removeprefix(PREFIX).split("/"):
            case _, ["faults", *rest]:
                return await self._faults_route(request, rest)
            case "GET", ["status"]:
                return 200, {"running_jobs": self._training.running()}
            case "GET", ["calls"]:
                return 200, [count.model_dump(mode="json") for count in self._calls.report()]
            case "DELETE", ["calls"]:
                self._calls.reset()
                return 200, {}
        return _unknown(request)

    async def _faults_route(self, request: Request, rest: list[str]) -> tuple[int, object]:
        match request.method, rest:
            case "GET", []:
                return 200, [report.model_dump(mode="json") for report in self._faults.report()]
            case "POST", []:
                try:
                    fault = FAULT.validate_json(await request.body())
                except ValidationError as error:
                    return 400, {"error": _one_line(error)}
                return 201, self._faults.add(fault).model_dump(mode="json")
            case "DELETE", []:
                self._faults.clear()
                return 200, {}
            case "DELETE", [identifier] if identifier.isdigit() and self._faults.remove(int(identifier)):
                return 200, {}
        return _unknown(request)


def _unknown(request: Request) -> tuple[int, object]:
    return 404, {"error": f"there is no {request.method} {request.path}"}


def _one_line(error: ValidationError) -> str:
    problems = (f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
    return "; ".join(problems)
