"""The one spelling of a time in documents: ISO 8601 in UTC with milliseconds and `Z`, which sorts as text."""

from __future__ import annotations

from datetime import UTC, datetime


def text(at: datetime) -> str:
    """`at` as documents hold it: `2026-11-21T09:45:00.000Z`. A time without a zone is local."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse(written: str) -> datetime:
    """The time that `written` holds, in ISO 8601.

    Raises:
        ValueError: it is no such time.
    """
    return datetime.fromisoformat(written)


def from_epoch_milliseconds(value: float) -> str:
    """A time in milliseconds since 1970, as AWS events carry it, in the spelling of `text`."""
    return text(datetime.fromtimestamp(value / 1000, UTC))
