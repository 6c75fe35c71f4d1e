"""The lineage of a run: the runs that it continues."""

from __future__ import annotations

from pydantic import Field

from muster.contract.document import StoredDocument


class Lineage(StoredDocument):
    """The runs before a continuation, whose rendezvous and checkpoints it shares."""

    parent: str = Field(description="the run that this run continues")
    root: str = Field(description="the first run of the lineage: rendezvous and checkpoints are stored under its name")
    generation: int = Field(ge=1, description="how many runs of the lineage came before")
    attempts_before: int = Field(
        ge=0,
        description="the highest attempt number in all earlier runs; higher claims fence their processes",
    )
    rounds_before: int = Field(
        default=0, ge=0, description="rounds that earlier runs committed, as far as is known: they must still be stored"
    )
