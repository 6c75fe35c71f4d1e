"""The fence: once it is raised, no job of the run is launched."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from muster.contract.document import StoredDocument, else_unknown
from muster.contract.run.ended_run import Verdict
from muster.contract.spec.run_limits import Timer
from muster.contract.timestamps import Timestamp


class FenceCause(StrEnum):
    """Why a run is stopping. Code depends on the cause only; the reason is for people."""

    EXECUTION_STOPPED = "execution-stopped"
    EXECUTION_FAILED = "execution-failed"
    QUORUM_LOST = "quorum-lost"
    LAUNCH_GATE = Timer.LAUNCH_GATE.value
    DEADLINE = Timer.DEADLINE.value
    UNKNOWN = "unknown"
    """A cause that a newer version of Muster has added."""

    @property
    def is_limit(self) -> bool:
        """Whether the run reached one of its limits, which a continuation must not evade. An unknown cause may be."""
        return self in {FenceCause.LAUNCH_GATE, FenceCause.DEADLINE, FenceCause.UNKNOWN}


class Fence(StoredDocument):
    """Why a run is stopping. The first fence that is written is valid, except that a cancellation replaces others."""

    verdict: Verdict
    cause: Annotated[FenceCause, else_unknown(FenceCause.UNKNOWN)]
    reason: str
    at: Timestamp

    @property
    def is_cancellation(self) -> bool:
        """Whether the run was cancelled: it stays stopped, and no continuation policy continues it."""
        return self.cause is FenceCause.EXECUTION_STOPPED

    def cancelled(self, by: Self) -> Self:
        """This fence once its run was cancelled as well."""
        if self.is_cancellation:
            return self
        reason = f"{by.reason} while the run was stopping: {self.reason}"
        return self.model_copy(update={"verdict": by.verdict, "cause": by.cause, "reason": reason, "at": by.at})
