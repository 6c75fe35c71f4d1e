"""What the workflow asks of attempt, and what attempt has done about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.contract.names import ATTEMPT_MAX, REPLICAS_MAX
from muster.control.aws.task_tokens import TokenRequest


class AttemptRequest(TokenRequest):
    """What the workflow sends."""

    rank: Annotated[int, Field(ge=0, lt=REPLICAS_MAX)]
    attempt: Annotated[int, Field(ge=1, le=ATTEMPT_MAX)]


class Launch(StrEnum):
    """The result of a call."""

    CREATED = "created"
    ADOPTED = "adopted"
    CONCLUDED = "concluded"
    REFUSED = "refused: the run is stopping"
    EARLY = "too early for the rerun"
    SUPERSEDED = "superseded"
    SILENT = "armed: its place does not answer"
    HELD = "held: its seat is parked"
