"""Commits of rounds, for tests of what is read from them."""

from __future__ import annotations

from muster.contract.run.commit import Commit, Member


def commit(number: int, members: dict[int, dict[str, float]], *, second: int = 0) -> Commit:
    """Round `number` with the metrics of its members by rank, `second` seconds after the start."""
    return Commit(
        run="run",
        round=number,
        committed_at=f"2026-05-04T03:{second // 60:02}:{second % 60:02}Z",
        count=1,
        members=tuple(
            Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0 + rank, checksum="0" * 8, metrics=metrics)
            for rank, metrics in members.items()
        ),
        epochs=(1,),
    )
