"""The headers of the binary objects, and the claim: what each says about itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import Document, digest
from muster.contract.run.commit import ROUND_MAX, Commit, Exclusion, Member

Round = Annotated[int, Field(ge=0, le=ROUND_MAX)]


class Claim(Document):
    """A process's hold of a rank."""

    run: str
    rank: int = Field(ge=0)
    attempt: int = Field(ge=1)
    incarnation: int = Field(ge=1)
    nonce: str = Field(description="tells a process its own claim when the store's answer was lost")


class ContributionHeader(Document):
    """A pseudo-gradient of one process for one round; without values when it had to decline."""

    kind: Literal["contribution"] = "contribution"
    run: str
    round: Round
    count: int = Field(ge=1)
    codec: str = Field(description="name and version of what the values are coded in")
    member: Member
    declined: str | None = Field(default=None, max_length=200)


class ReducedHeader(Document):
    """A shard of a round's mean, or the word that it cannot be made from these members."""

    kind: Literal["reduced"] = "reduced"
    run: str
    round: Round
    revision: int = Field(ge=0)
    shard: int = Field(ge=0)
    codec: str = Field(description="name and version of what the values are coded in")
    roster: str = Field(description="digest of the members that were averaged")
    rejected: tuple[Exclusion, ...] = ()


class Beginner(Document):
    """Who is to upload what training begins with."""

    run: str
    rank: int = Field(ge=0)
    epoch: int = Field(ge=1)


class SnapshotHeader(Document):
    """A shard of the global state after a round: of the parameters and, behind them, the outer momentum."""

    kind: Literal["snapshot"] = "snapshot"
    run: str
    round: Round
    shard: int = Field(ge=0)
    layout: str = Field(description="digest of the parameters' names and shapes")


class SnapshotManifest(Document):
    """Says that a snapshot is complete, and where its shards lie."""

    run: str
    round: Round
    count: int = Field(ge=1, description="elements of the parameters")
    layout: str = Field(description="digest of the parameters' names and shapes")
    shards: int = Field(ge=1)
    source: str = Field(description="whose shards they are", pattern=r"^[0-9a-z-]+$")


def roster_digest(commit: Commit) -> str:
    """Names a list of members: a shard belongs to exactly one such list."""
    return digest([member.model_dump(mode="json") for member in commit.members])
