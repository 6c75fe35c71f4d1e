"""Calls that a verification may not be allowed to make. What could not be asked names the missing permission."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from muster.client.aws.error_translation import translated
from muster.client.errors import ClientError, DeniedError


class UncheckedError(ClientError):
    """Something cannot be checked. `remedy` is what would make it possible."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


@contextmanager
def allowed(action: str, resource: str = "*") -> Iterator[None]:
    """Makes calls that need `action` on `resource`.

    Raises:
        UncheckedError: these credentials do not allow it.
        ClientError: AWS cannot be reached or refuses for another reason.
    """
    try:
        with translated():
            yield
    except DeniedError as error:
        reason = f"These credentials are not allowed to call {action}."
        raise UncheckedError(reason, statement_text([action], [resource])) from error


def statement_text(
    actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Mapping[str, object]] | None = None
) -> str:
    """An IAM statement that allows `actions`, as JSON to be pasted into a policy."""
    statement: dict[str, object] = {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    if conditions:
        statement["Condition"] = conditions
    return json.dumps(statement)
