"""The one clock of the control plane."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds; sorts as text."""
    return isoformat(datetime.now(UTC))


def isoformat(at: datetime) -> str:
    """`at` as `now` writes it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_epoch_milliseconds(value: float) -> str:
    """The times in SageMaker's events are epoch milliseconds."""
    return isoformat(datetime.fromtimestamp(value / 1000, UTC))


def seconds_since(moment: str) -> float:
    """Seconds from `moment`, as `now` wrote it, until now."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
