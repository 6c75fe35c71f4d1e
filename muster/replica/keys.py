"""Where the objects of a rendezvous lie, below the run's rendezvous prefix. Numbers are padded: keys sort by round."""

from __future__ import annotations


def claim(rank: int, epoch: int) -> str:
    """Who holds a rank; whoever created the highest epoch does."""
    return f"claims/{rank:05d}/{epoch:06d}.json"


def contribution(round_: int, rank: int, epoch: int) -> str:
    """What one process gives to a round."""
    return f"contributions/{round_:08d}/{rank:05d}-{epoch:06d}"


def commit(round_: int, revision: int = 0) -> str:
    """The list of a round's members, or an amendment of it."""
    return f"commits/{round_:08d}.json" if revision == 0 else f"amendments/{round_:08d}-{revision:03d}.json"


def reduced(round_: int, revision: int, shard: int) -> str:
    """One shard of a round's mean."""
    return f"reduced/{round_:08d}/{revision:03d}-{shard:05d}"


def state(round_: int) -> str:
    """The global state after a round; round 0 is what training began with."""
    return f"states/{round_:08d}"
