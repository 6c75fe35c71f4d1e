"""The bodies of the agent's requests, checked as the agent checks them: 422 with the places that are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

_B = TypeVar("_B", bound=BaseModel)


class BadBodyError(Exception):
    """A body that is not what the path takes; `detail` is the answer's."""

    def __init__(self, detail: Sequence[object]) -> None:
        super().__init__("the body is not valid")
        self.detail = detail


def _not_empty(address: str) -> str:
    if not address:
        message = "Empty master_addr received from operator"
        raise ValueError(message)
    return address


def _port(value: int | str) -> int:
    """An empty port is 0."""
    return int(value or 0)


class Ranks(BaseModel):
    """The body of /update: who is who in the job."""

    rank: int
    nnodes: int
    faultCount: int  # noqa: N815 - as it is sent
    master_addr: Annotated[str, AfterValidator(_not_empty)]
    master_port: Annotated[int | str, AfterValidator(_port)]
    log_monitoring_configuration: list[dict[str, Any]] | None = None
    ipVersion: str | None = None  # noqa: N815 - as it is sent
    rankIps: list[dict[str, str | int]] | None = None  # noqa: N815 - as it is sent
    worker_data: Any | None = None
    spare: bool | int = False


class Start(Ranks):
    """The body of /start."""

    progress: dict[str, Any] = Field(default_factory=dict)


class Stop(BaseModel):
    """The body of /stop, which may be missing."""

    restart_mode: str | None = "ipr"
    is_graceful: bool | None = None
    timeout: int | None = None


def read(model: type[_B], body: bytes) -> _B:
    """The body as `model`.

    Raises:
        BadBodyError: it is not one.
    """
    if not body:
        raise BadBodyError([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    try:
        return model.model_validate(json.loads(body))
    except json.JSONDecodeError as error:
        found = {"type": "json_invalid", "loc": ["body", error.pos], "msg": "JSON decode error", "input": {}}
        raise BadBodyError([{**found, "ctx": {"error": error.msg}}]) from error
    except ValidationError as error:
        raise BadBodyError([_located(problem) for problem in error.errors(include_url=False)]) from error


def _located(problem: Any) -> dict[str, object]:
    context = {name: str(value) for name, value in problem.get("ctx", {}).items()}
    found = {**problem, "loc": ["body", *problem["loc"]]}
    return {**found, "ctx": context} if context else found
