"""The one spelling of a time in documents: ISO 8601 in UTC with milliseconds and `Z`, which sorts as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NewType

Timestamp = NewType("Timestamp", str)
"""A time in a document. `text` and `from_epoch_milliseconds` are the only ways to make one."""


def text(at: datetime) -> Timestamp:
    """`at` as documents hold it: `2026-11-21T09:45:00.000Z`. A time without a zone is local."""
    return Timestamp(at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def parse(written: str) -> datetime:
    """The time that `written` holds, in ISO 8601.

    Raises:
        ValueError: it is no such time.
    """
    return datetime.fromisoformat(written)


def from_epoch_milliseconds(value: float) -> Timestamp:
    """A time in milliseconds since 1970, as AWS events carry it, in the spelling of `text`."""
    return text(datetime.fromtimestamp(value / 1000, UTC))


def seconds_between(begin: str, end: str) -> float:
    """Seconds from `begin` to `end`, both in ISO 8601.

    Raises:
        ValueError: one of them is not a time.
    """
    return (parse(end) - parse(begin)).total_seconds()
