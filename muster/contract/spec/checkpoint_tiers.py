"""How often a replica saves its inner state between rounds, and where: `checkpoints` of a spec."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem

EVERY_MAX = 1_000_000


class CheckpointTiers(Document):
    """Inner steps between two saved inner states of a replica, for each tier."""

    memory_every: int | None = Field(
        default=None,
        ge=1,
        le=EVERY_MAX,
        description="inner steps between two states in the fast tier: the memory of the HyperPod cluster's nodes where "
        "the cluster and the image have managed tiered checkpointing, else the instance's disk",
    )
    s3_every: int | None = Field(
        default=None,
        ge=1,
        le=EVERY_MAX,
        description="inner steps between two states in S3, which outlive the instance; at least memory_every",
    )

    def problems(self, *, counts_steps: bool) -> Iterator[Problem]:
        """What does not fit together; `counts_steps`: whether a front end counts the program's inner steps. Pure."""
        if not counts_steps:
            statement = "set without a trainer whose inner steps are counted"
            remedy = "leave it out, or train with muster.torch, muster.huggingface, muster.lightning or muster.DiLoCo"
            yield StatedProblem("checkpoints", statement, remedy)
        if self.memory_every is None and self.s3_every is None:
            remedy = "set memory_every or s3_every, or leave checkpoints out"
            yield StatedProblem("checkpoints", "neither memory_every nor s3_every is set", remedy)
        elif self.memory_every is not None and self.s3_every is not None and self.s3_every < self.memory_every:
            # No multiple is asked for: each tier counts for itself.
            allowed = f"at least memory_every ({self.memory_every})"
            remedy = "raise it, or leave memory_every out: a state in S3 serves for both"
            yield Problem("checkpoints.s3_every", str(self.s3_every), remedy, allowed)
