"""The control plane's state of one replica. It holds the task token, so it is stored under `control/` only."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.run.attempt import Attempt
from muster.contract.timestamps import Timestamp


class Next(StrEnum):
    """What follows the end of an attempt. The workflow branches on it.

    STOP: the run has lost its quorum with this replica, or a rule of `watch` stops it. A record never holds it, because
    the quorum depends on the other replicas.
    """

    DONE = "done"
    RERUN = "rerun"
    FAIL = "fail"
    STOP = "stop"


class Decision(StoredPart):
    """What the end of an attempt means for its replica, and what the workflow does next."""

    next: Next
    attempt: int = Field(ge=1, description="the attempt that ended; for a rerun, the one to launch")
    lost: bool = Field(default=False, description="whether the replica failed and has no rerun left")
    parked: bool = Field(
        default=False, description="for a rerun: whether the seat waits until it is wanted, or for capacity"
    )
    at_ceiling: bool = Field(default=False, description="whether it is lost because the cost ceiling is reached")
    stops_run: bool = Field(default=False, description="whether the spec says that the run stops with it")
    delay_seconds: int = Field(default=0, ge=0, description="for a rerun: from the decision to the launch")
    decided_at: Timestamp | None = None
    reason: str = ""


class Wait(StoredPart):
    """A look waits for news of an attempt's job on a cluster, so that others need not."""

    attempt: int = Field(ge=1)
    until: Timestamp
    explains: bool = Field(description="whether it knows the words of an end notice")


class Record(StoredDocument):
    """The state of a replica. Every write is a compare-and-swap on the object's ETag."""

    run: str
    rank: int = Field(ge=0)
    revision: int = Field(default=0, ge=0, description="grows with every write; 0 in records of older versions")
    token: str
    armed_at: str = Field(description="when the workflow created the token; a later token replaces it")
    attempts: tuple[Attempt, ...] = Field(min_length=1)
    decision: Decision | None = None
    wait: Wait | None = Field(default=None, description="of a job on a cluster; none while no look waits")
    leaves: int | None = Field(
        default=None, ge=1, description="the attempt that was asked to leave, because its seat was closed"
    )

    @property
    def current(self) -> Attempt:
        """The latest attempt, the only one that can change."""
        return self.attempts[-1]
