"""How an object is deleted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeleteOptions:
    """How an object is deleted."""

    propagation: str | None = None
    """Background, Foreground, Orphan; None: as the resource does it by itself, in the background."""
    grace_seconds: int | None = None
    """None: as the object says."""
    uid: str | None = None
    resource_version: str | None = None
