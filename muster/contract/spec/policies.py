"""How a run reacts to slow, lost and early replicas, and when a failed run gets a continuation."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from muster.contract import names
from muster.contract.document import Document


class OnReplicaFailure(StrEnum):
    """What follows for the run when a replica is lost (it failed, and its retry budget is used up)."""

    TERMINATE = "terminate"
    CONTINUE = "continue"


class OnEarlyFinish(StrEnum):
    """What follows when the trainer of a replica returns while the other replicas train on."""

    CONTINUE = "continue"
    STOP = "stop"


class Rendezvous(Document):
    """How long the replicas wait for each other."""

    min_participants: int | None = Field(
        default=None,
        ge=1,
        le=names.REPLICAS_MAX,
        description="contributions that make a round; at most min_replicas, which is the default",
    )
    quorum: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="the share of the expected replicas for which a round waits longer, though it has "
        "min_participants: as long as rounds usually take; 0.75 where replicas come and go",
    )
    grace_seconds: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="how long a round waits for stragglers after its quorum is reached, at most: "
        "the wait adapts to earlier rounds",
    )
    timeout_seconds: float = Field(
        default=3_600.0,
        gt=0,
        le=604_800,
        description="how long a replica waits for a round before it fails",
    )
    snapshot_rounds: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="rounds between two snapshots of the global state; a snapshot replaces the rounds before it",
    )
    checkpoint_rounds: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="rounds between two checkpoints of what is large of a replica's own state, such as the averages of "
        "the inner optimizer; the rest is saved with every round, and all of it before an interruption",
    )


ContinuationCause = Literal[
    "failed",
    "capacity",
    "quota",
    "throttle",
    "spot",
    "infrastructure",
    "user-code",
    "timeout",
    "stopped-by-user",
    "invalid-request",
    "unknown",
]


class ContinuationPolicy(Document):
    """Which failed runs get a continuation from the last committed round, and how many."""

    on: list[ContinuationCause] = Field(
        min_length=1, description="failure classes of lost replicas that are followed by one; `failed`: any class"
    )
    max: int = Field(ge=1, le=names.CONTINUATIONS_MAX, description="continuations, at most")
