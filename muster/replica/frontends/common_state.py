"""The newest state that all processes of a replica have saved: each has its own, in files of its own."""

from __future__ import annotations

from muster.replica.parts.link import Link
from muster.replica.store.checkpoints import Checkpoints


def load_common(link: Link, checkpoints: Checkpoints, last_round: int, epoch: int | None = None) -> bytes | None:
    """This process's state after the newest round, at most `last_round`, of which every process has one; else None.

    `epoch`: as in `Checkpoints.load`.
    """
    while True:
        found = checkpoints.load(last_round, epoch)
        rounds: list[int] = link.gather(-1 if found is None else found[0])
        if found is None or min(rounds) < 0:
            return None
        if min(rounds) == max(rounds):
            return found[1]
        last_round, epoch = min(rounds), None
