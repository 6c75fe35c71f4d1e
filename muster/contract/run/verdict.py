"""How a run ended. By itself, because a list of runs shows this of a result and nothing else."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
