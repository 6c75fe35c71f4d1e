"""The headers of the binary objects, and the small JSON objects beside them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import StoredDocument, digest
from muster.contract.run.commit import STATE, Commit, Exclusion, Finish, Member
from muster.contract.run.round_values import ROUND_MAX

Round = Annotated[int, Field(ge=0, le=ROUND_MAX)]


class ClaimDocument(StoredDocument):
    """A process's claim of a rank."""

    run: str
    rank: int = Field(ge=0)
    attempt: int = Field(ge=1)
    incarnation: int = Field(ge=1)
    nonce: str = Field(description="identifies a process's own claim when the store's answer was lost")
    finish: Finish | None = Field(
        default=None, description="of a process that has finished: with this claim it gives its rank up"
    )
    loads: bool = Field(
        default=False, description="of a process that loads the run's state: it claims again when it can contribute"
    )


class ContributionHeader(StoredDocument):
    """A pseudo-gradient of one process for one round; without values if the process declined."""

    kind: Literal["contribution"] = "contribution"
    run: str
    round: Round
    count: int = Field(ge=1)
    exact: int = Field(default=0, ge=0, description="elements at the end that are float32 whatever the codec")
    codec: str = Field(description="name and version of what the other values are coded in")
    member: Member
    declined: str | None = Field(default=None, max_length=200)
    state: str | None = Field(default=None, pattern=STATE, description="digest of the parameters that it starts from")
    suspect: str | None = Field(
        default=None, max_length=200, description="why it is left out if the round is made without it"
    )


class PartHeader(StoredDocument):
    """Some records of a contribution, of one process of the replica. The contribution's own object comes last."""

    kind: Literal["part"] = "part"
    run: str
    round: Round
    rank: int = Field(ge=0)
    part: int = Field(ge=0)
    parts: int = Field(ge=1)
    codec: str = Field(description="name and version of what the values are coded in")


class ReducedHeader(StoredDocument):
    """A shard of a round's mean, or the statement that it cannot be made from these members."""

    kind: Literal["reduced"] = "reduced"
    run: str
    round: Round
    revision: int = Field(ge=0)
    shard: int = Field(ge=0)
    codec: str = Field(description="name and version of what the values are coded in")
    roster: str = Field(description="digest of the members that were averaged")
    rejected: tuple[Exclusion, ...] = ()
    late: tuple[str, ...] = Field(default=(), max_length=32, description="places whose values have not come in time")


class Verdict(StoredDocument):
    """Which of the contributions that it is about are unusable, as the first process found that has read them."""

    run: str
    round: Round
    revision: int = Field(ge=0)
    rejected: tuple[Exclusion, ...] = ()


class InitialStateSource(StoredDocument):
    """The process that uploads the initial state."""

    run: str
    rank: int = Field(ge=0)
    epoch: int = Field(ge=1)


class ModelWriter(StoredDocument):
    """The process that writes the model of a run after a round."""

    run: str
    round: Round
    rank: int = Field(ge=0)
    epoch: int = Field(ge=1)


class SnapshotHeader(StoredDocument):
    """A shard of the global state after a round: of the parameters followed by the outer momentum."""

    kind: Literal["snapshot"] = "snapshot"
    run: str
    round: Round
    shard: int = Field(ge=0)
    layout: str = Field(description="digest of the parameters' names and shapes")


class SnapshotManifest(StoredDocument):
    """States that a snapshot is complete, and where its shards lie."""

    run: str
    round: Round
    count: int = Field(ge=1, description="elements of the parameters")
    exact: int = Field(default=0, ge=0, description="elements at the end that are float32 whatever the codec")
    layout: str = Field(description="digest of the parameters' names and shapes")
    shards: int = Field(ge=1)
    source: str = Field(description="the process that wrote the shards, or `shared`", pattern=r"^[0-9a-z-]+$")


def roster_digest(commit: Commit) -> str:
    """Names a list of members: a shard belongs to exactly one such list.

    Without defaults, so that every version of Muster computes the same digest, whichever fields it has added.
    """
    return digest([member.model_dump(mode="json", exclude_defaults=True) for member in commit.members])
