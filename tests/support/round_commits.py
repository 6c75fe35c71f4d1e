"""Commits of rounds."""

from collections.abc import Iterable
from typing import Any

from muster.contract.run.commit import Commit, Member
from muster.contract.timestamps import Timestamp

START = "2026-05-04T03:00:00.000Z"


def member(rank: int, **fields: Any) -> Member:
    """A member of a round."""
    usual = {"attempt": 1, "incarnation": 1, "epoch": 1, "weight": 1.0, "checksum": f"{rank:08x}"}
    return Member(rank=rank, **{**usual, **fields})


def commit_of(members: Iterable[Member | int], **fields: Any) -> Commit:
    """The commit of a round with these members, or with members of these ranks."""
    found = tuple(member(one) if isinstance(one, int) else one for one in members)
    usual = {"run": "r", "round": 1, "committed_at": "", "count": 1, "epochs": (1, 1, 1, 1)}
    return Commit(members=found, **{**usual, **fields})


def commit(number: int, members: dict[int, dict[str, float]], *, second: int = 0) -> Commit:
    """The commit of a round at a second after `START`: the metrics of its members by rank."""
    return commit_of(
        [member(rank, weight=1.0 + rank, metrics=metrics) for rank, metrics in members.items()],
        run="run",
        round=number,
        committed_at=Timestamp(f"2026-05-04T03:{second // 60:02}:{second % 60:02}Z"),
        epochs=(1,),
    )
