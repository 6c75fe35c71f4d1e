"""Kubernetes's own errors: a `Status` object with code, reason, message and details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.options.hyperpod.contract.job_schema import SchemaProblem, SchemaRule
from muster.options.hyperpod.local.kubernetes.served_resources import Resource

Document = dict[str, Any]
"""A JSON object of the API."""


class StatusError(Exception):
    """What the API answers instead of an object."""

    def __init__(
        self, code: int, reason: str, message: str, details: Document | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def document(self) -> Document:
        """The `Status` object."""
        status: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        return {**status, "details": self.details} if self.details else status


def bad_request(message: str) -> StatusError:
    """400: the request itself cannot be read."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: Resource, name: str) -> StatusError:
    """404: there is no such object."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> StatusError:
    """404: the server has no such resource."""
    details = {"causes": [{"reason": "UnexpectedServerResponse", "message": "404 page not found"}]}
    return StatusError(404, "NotFound", "the server could not find the requested resource", details)


def already_exists(resource: Resource, name: str) -> StatusError:
    """409: the name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    """409: the object is another one than the caller thinks."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def invalid_object(resource: Resource, name: str, problems: Sequence[SchemaProblem]) -> StatusError:
    """422: the schema of its kind refuses the object."""
    causes = [{"reason": one.rule, "message": words_of(one), "field": one.path} for one in problems]
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {**_details(resource, name), "kind": resource.kind, "causes": causes}
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def words_of(problem: SchemaProblem) -> str:
    """A problem as Kubernetes words it, without the field: `Invalid value: "x": must be ...`."""
    if problem.rule is SchemaRule.REQUIRED:
        return "Required value"
    kind = "Unsupported" if problem.rule is SchemaRule.VALUE else "Invalid"
    return f"{kind} value: {problem.found}: {problem.allowed}" if problem.found else f"{kind} value: {problem.allowed}"


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """403: refused by an admission rule or for lack of a right."""
    named = f' "{name}"' if name else ""
    return StatusError(403, "Forbidden", f"{resource.qualified}{named} is forbidden: {why}", _details(resource, name))


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_served(what: str) -> StatusError:
    """501: Kubernetes knows it, and the embedded API does not."""
    return StatusError(501, "NotImplemented", f"the embedded Kubernetes API does not serve {what}")


def _details(resource: Resource, name: str) -> Document:
    found = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in found.items() if value}
