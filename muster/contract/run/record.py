"""The control plane's memory of one replica. Holds the task token: it never leaves `control/`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.contract.aws.failures import FailureClass
from muster.contract.document import Document

RECORD_VERSION = 1
NOT_CREATED = "NotCreated"
"""The secondary status of an attempt that ended without ever having a job: it was refused."""


class Next(StrEnum):
    """What follows the end of an attempt. The workflow branches on it."""

    DONE = "done"
    RERUN = "rerun"
    FAIL = "fail"
    STOP = "stop"


class Decision(Document):
    """What the end of an attempt means, and what the workflow does about it."""

    next: Next
    attempt: int = Field(ge=1, description="the attempt that ended; for a rerun, the one to launch")
    delay_seconds: int = Field(default=0, ge=0, description="for a rerun: from the end to the launch")
    decided_at: str = ""
    reason: str = ""


class Transition(Document):
    """A secondary status as SageMaker reported it; one that we do not know is kept as it is."""

    at: str
    secondary: str


class Attempt(Document):
    """One job's life."""

    attempt: int = Field(ge=1)
    job: str
    launched_at: str
    ended_at: str | None = None
    status: str = ""
    secondary: str = ""
    history: tuple[Transition, ...] = ()
    failure_class: FailureClass | None = None
    reason: str = ""
    artifacts: str | None = None


class Record(Document):
    """The state of a replica. Every write is a compare-and-swap on the object's ETag."""

    version: Annotated[int, Field(ge=RECORD_VERSION, le=RECORD_VERSION)] = RECORD_VERSION
    run: str
    rank: int = Field(ge=0)
    token: str
    armed_at: str = Field(description="when the workflow made the token: a later one replaces it")
    attempts: tuple[Attempt, ...] = Field(min_length=1)
    decision: Decision | None = None

    @property
    def current(self) -> Attempt:
        """The latest attempt, which alone may change."""
        return self.attempts[-1]
