"""How a run ends, in one word."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
