"""Where the objects of a rendezvous lie, below the run's rendezvous prefix. Numbers are padded: keys sort by round."""

from __future__ import annotations

CONTRIBUTIONS = "contributions/"
REDUCED = "reduced/"
SNAPSHOTS = "snapshots/"

# Who uploads what training begins with.
BEGINNER = "beginner.json"
# What all replicas must have set alike.
OPTIONS = "options.json"


def claim(rank: int, epoch: int) -> str:
    """Who holds a rank; whoever created the highest epoch does."""
    return f"claims/{rank:05d}/{epoch:06d}.json"


def contributions(round_: int) -> str:
    """What is given to a round."""
    return f"{CONTRIBUTIONS}{round_:08d}/"


def contribution(round_: int, rank: int, epoch: int) -> str:
    """What one process gives to a round."""
    return f"{contributions(round_)}{rank:05d}-{epoch:06d}"


def commit(round_: int, revision: int = 0) -> str:
    """The list of a round's members, or an amendment of it."""
    return f"commits/{round_:08d}.json" if revision == 0 else f"amendments/{round_:08d}-{revision:03d}.json"


def reduced_shards(round_: int) -> str:
    """A round's mean."""
    return f"{REDUCED}{round_:08d}/"


def reduced(round_: int, revision: int, shard: int) -> str:
    """One shard of a round's mean."""
    return f"{reduced_shards(round_)}{revision:03d}-{shard:05d}"


def snapshot_shards(round_: int) -> str:
    """The global state after a round; round 0 is what training began with."""
    return f"{SNAPSHOTS}{round_:08d}/"


def snapshot(round_: int, source: str, shard: int) -> str:
    """One shard of the global state, as `source` wrote it."""
    return f"{snapshot_shards(round_)}{source}/{shard:05d}"


def manifest(round_: int) -> str:
    """The last object of a snapshot: it is complete."""
    return f"manifests/{round_:08d}.json"


def torchft_state(round_: int) -> str:
    """What torchft's algorithms hold after a round."""
    return f"torchft/{round_:08d}"
