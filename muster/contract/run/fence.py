"""The fence: once it is raised, no job of the run is launched."""

from __future__ import annotations

from enum import StrEnum

from muster.contract.document import Document
from muster.contract.run.result import Verdict
from muster.contract.spec.run_limits import Timer
from muster.contract.timestamps import Timestamp


class FenceCause(StrEnum):
    """Why a run is stopping. Code depends on the cause only; the reason is for people."""

    EXECUTION_STOPPED = "execution-stopped"
    EXECUTION_FAILED = "execution-failed"
    QUORUM_LOST = "quorum-lost"
    LAUNCH_GATE = Timer.LAUNCH_GATE.value
    DEADLINE = Timer.DEADLINE.value

    @property
    def is_limit(self) -> bool:
        """Whether the run reached one of its limits, which a continuation must not evade."""
        return self in {FenceCause.LAUNCH_GATE, FenceCause.DEADLINE}


class Fence(Document):
    """Why a run is stopping. The first fence that is written is valid."""

    verdict: Verdict
    cause: FenceCause
    reason: str
    at: Timestamp
