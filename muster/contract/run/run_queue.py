"""The run queue of a stack that caps its concurrent replicas. One small document, pure rules.

First come, first served: smaller runs do not overtake a large one, or the large one might never start.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.timestamps import Timestamp

QUEUE_KEY = "queue/replicas.json"
"""Clients may read it: it contains no secret."""


class QueuedRun(StoredPart):
    """One run that is admitted, or waits for admission."""

    run: str
    execution_arn: str
    replicas: int = Field(ge=1)
    asked_at: Timestamp
    admitted: bool = False
    told: bool = Field(default=False, description="whether its workflow has learnt that it is admitted")


class QueueToken(StoredDocument):
    """The task token of a queued run; it is stored under `control/`."""

    token: str
    armed_at: str = Field(default="", description="when the workflow created it; a later token replaces it")


class Queue(StoredDocument):
    """All runs that are admitted or wait, in the order in which they joined."""

    runs: tuple[QueuedRun, ...] = ()
    revision: int = Field(default=0, ge=0, description="how often it was changed: no two versions have the same bytes")

    def asked(self, queued: QueuedRun, cap: int) -> Queue:
        """The queue with one more run at the end, unless the run joined before."""
        known = any(other.execution_arn == queued.execution_arn for other in self.runs)
        return self._admitting(self.runs if known else (*self.runs, queued), cap)

    @property
    def untold(self) -> tuple[QueuedRun, ...]:
        """The runs that are admitted and may not know it."""
        return tuple(queued for queued in self.runs if queued.admitted and not queued.told)

    def with_told(self, execution_arns: Collection[str]) -> Queue:
        """The queue after these runs, where they are admitted, have learnt of it."""
        return self.model_copy(
            update={
                "runs": tuple(
                    queued.model_copy(update={"told": True})
                    if queued.admitted and queued.execution_arn in execution_arns
                    else queued
                    for queued in self.runs
                )
            }
        )

    def without(self, execution_arns: Collection[str], cap: int) -> Queue:
        """The queue without runs that have ended; waiting runs that fit now are admitted."""
        return self._admitting(tuple(queued for queued in self.runs if queued.execution_arn not in execution_arns), cap)

    def is_admitted(self, execution_arn: str) -> bool:
        """Whether the run may launch its replicas."""
        return any(queued.admitted for queued in self.runs if queued.execution_arn == execution_arn)

    def before(self, run: str) -> tuple[str, ...] | None:
        """The runs in front of `run`; None where it does not wait."""
        place = next((index for index, queued in enumerate(self.runs) if queued.run == run), None)
        if place is None or self.runs[place].admitted:
            return None
        return tuple(queued.run for queued in self.runs[:place])

    def _admitting(self, runs: tuple[QueuedRun, ...], cap: int) -> Queue:
        used = sum(queued.replicas for queued in runs if queued.admitted)
        after = []
        blocked = False
        for queued in runs:
            if not queued.admitted and not blocked:
                # If the cap was lowered below the size of a waiting run, the run starts alone instead of never.
                blocked = used > 0 and used + queued.replicas > cap
                if not blocked:
                    used += queued.replicas
                    after.append(queued.model_copy(update={"admitted": True}))
                    continue
            after.append(queued)
        return self.model_copy(update={"runs": tuple(after)})
