"""Lists that are answered page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.local.sagemaker.service_errors import ServiceError, unsupported


def page(
    name: str, rows: Sequence[object], request: Mapping[str, Any], default: int, code: str = "ValidationException"
) -> dict[str, Any]:
    """The answer with the rows that a request asks for by MaxResults and NextToken.

    Args:
        name: of the list in the answer.
        rows: all of them, in the order of the answer.
        request: with both members, or without.
        default: the rows of a page without MaxResults.
        code: of the error for a token that is none.

    Raises:
        ServiceError: the token is not from an answer.
    """
    token = str(request.get("NextToken") or "0")
    if not token.isdecimal():
        message = "The token is not from an answer of this call."
        raise ServiceError(code, message)
    start, end = int(token), int(token) + int(request.get("MaxResults", default))
    answer: dict[str, Any] = {name: rows[start:end]}
    return {**answer, "NextToken": str(end)} if end < len(rows) else answer


def refuse_others(request: Mapping[str, Any], *served: str) -> None:
    """Refuse a list by what the embedded cloud cannot select or sort by.

    Raises:
        ServiceError: 501 for a member that is not among `served` and those of pages.
    """
    others = sorted(request.keys() - {*served, "MaxResults", "NextToken"})
    if others:
        what = f"a list by {', '.join(others)}"
        raise unsupported(what)
