"""The fence: once it stands, nothing of the run is launched any more."""

from __future__ import annotations

from enum import StrEnum

from muster.contract.document import Document
from muster.contract.run.result import Verdict
from muster.contract.spec.run_limits import Timer


class FenceCause(StrEnum):
    """Why a run is stopping. Code decides by the cause; the reason is for people."""

    EXECUTION_STOPPED = "execution-stopped"
    EXECUTION_FAILED = "execution-failed"
    QUORUM_LOST = "quorum-lost"
    LAUNCH_GATE = Timer.LAUNCH_GATE.value
    DEADLINE = Timer.DEADLINE.value

    @property
    def is_limit(self) -> bool:
        """Whether the run met a limit of its own, which a continuation would only evade."""
        return self in {FenceCause.LAUNCH_GATE, FenceCause.DEADLINE}


class Fence(Document):
    """Why a run is stopping. The first one stands."""

    verdict: Verdict
    cause: FenceCause
    reason: str
    at: str
