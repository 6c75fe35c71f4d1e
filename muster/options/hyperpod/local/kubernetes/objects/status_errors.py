"""Kubernetes's own errors: a `Status` object with code, reason, message and details."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Document = dict[str, Any]
"""A JSON object of the API."""
_WRONG_TYPE = "FieldValueTypeInvalid"


class Named(Protocol):
    """What errors say of a resource."""

    @property
    def group(self) -> str:
        """Empty for the core."""

    @property
    def plural(self) -> str:
        """`pods`."""

    @property
    def kind(self) -> str:
        """`Pod`."""

    @property
    def qualified(self) -> str:
        """`pods`, `hyperpodpytorchjobs.sagemaker.amazonaws.com`."""


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
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


@dataclass(frozen=True)
class Problem:
    """Something wrong with one field of an object."""

    path: str
    reason: str
    """FieldValueInvalid, FieldValueRequired, FieldValueNotSupported..."""
    text: str
    """As Kubernetes words it, without the field: `Invalid value: "x": must be ...`."""

    @property
    def is_wrong_type(self) -> bool:
        """Whether it has another JSON type than its schema's."""
        return self.reason == _WRONG_TYPE

    def cause(self) -> Document:
        """An item of `details.causes`."""
        return {"reason": self.reason, "message": self.text, "field": self.path}


def required(path: str, text: str = "") -> Problem:
    """A field that must be there."""
    return Problem(path, "FieldValueRequired", f"Required value: {text}" if text else "Required value")


def invalid(path: str, value: object, text: str) -> Problem:
    """A field with a value that is not allowed."""
    return Problem(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {text}")


def wrong_type(path: str, value: object, expected: str) -> Problem:
    """A field of another JSON type than its schema's."""
    found = _type_name(value)
    # Kubernetes says the type instead of the value here.
    text = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
    return Problem(path, _WRONG_TYPE, text)


def unsupported(path: str, value: object, allowed: Sequence[str]) -> Problem:
    """A field with a value outside of a closed list."""
    listed = ", ".join(json.dumps(item) for item in allowed)
    return Problem(path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")


def too_long(path: str, limit: int) -> Problem:
    """A text above its limit."""
    return Problem(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def shown(value: object) -> str:
    """A value as in Kubernetes's messages."""
    return json.dumps(value, separators=(",", ":"))


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def bad_request(message: str) -> StatusError:
    """400: the request itself cannot be read."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: the caller is not known."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def not_found(resource: Named, name: str) -> StatusError:
    """404: there is no such object."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> StatusError:
    """404: the server has no such resource."""
    details = {"causes": [{"reason": "UnexpectedServerResponse", "message": "404 page not found"}]}
    return StatusError(404, "NotFound", "the server could not find the requested resource", details)


def already_exists(resource: Named, name: str) -> StatusError:
    """409: the name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Named, name: str, why: str) -> StatusError:
    """409: the object is another one than the caller thinks."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def invalid_object(resource: Named, name: str, problems: Sequence[Problem]) -> StatusError:
    """422: the object breaks its kind's rules."""
    texts = list(dict.fromkeys(f"{problem.path}: {problem.text}" for problem in problems))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    details = {key: value for key, value in details.items() if value}
    causes = [problem.cause() for problem in problems]
    message = f'{kind} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", message, {**details, "causes": causes})


def forbidden(resource: Named, name: str, why: str) -> StatusError:
    """403: refused by an admission rule or for lack of a right."""
    named = f' "{name}"' if name else ""
    return StatusError(403, "Forbidden", f"{resource.qualified}{named} is forbidden: {why}", _details(resource, name))


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def expired(message: str) -> StatusError:
    """410: older than what is remembered."""
    return StatusError(410, "Expired", message)


def not_served(what: str) -> StatusError:
    """501: Kubernetes knows it, and the embedded API does not."""
    return StatusError(501, "NotImplemented", f"the embedded Kubernetes API does not serve {what}")


def internal(message: str) -> StatusError:
    """500: what Kubernetes has no reason for."""
    return StatusError(500, "", message)


def _details(resource: Named, name: str) -> Document:
    found = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in found.items() if value}
