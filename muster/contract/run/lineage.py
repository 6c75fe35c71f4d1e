"""Where a run comes from, and who goes on where it has ended."""

from __future__ import annotations

from pydantic import Field

from muster.contract.document import Document


class Lineage(Document):
    """The runs before this one, whose rendezvous and checkpoints it goes on with."""

    parent: str = Field(description="the run that ended last")
    root: str = Field(description="the first of them: rendezvous and checkpoints lie under its name")
    generation: int = Field(ge=1, description="how many runs were before")
    attempts_before: int = Field(
        ge=0, description="the highest attempt of any rank in all runs before: every process of theirs is fenced"
    )


class Continuation(Document):
    """The one run that goes on where a run has ended: written once, beside the result of the run before."""

    run: str
    execution_arn: str = Field(description="of the continuation")
