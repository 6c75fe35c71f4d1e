"""Commits of rounds as the tests of the page need them."""

from __future__ import annotations

from muster.contract.run.commit import Commit, Member
from muster.contract.timestamps import Timestamp

START = "2026-05-04T03:00:00.000Z"


def commit(number: int, members: dict[int, dict[str, float]], *, second: int = 0) -> Commit:
    """The commit of a round at a second after `START`: the metrics of its members by rank."""
    return Commit(
        run="run",
        round=number,
        committed_at=Timestamp(f"2026-05-04T03:{second // 60:02}:{second % 60:02}Z"),
        count=1,
        members=tuple(
            Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0 + rank, checksum="0" * 8, metrics=metrics)
            for rank, metrics in members.items()
        ),
        epochs=(1,),
    )
