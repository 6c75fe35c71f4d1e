"""Where the objects of a rendezvous lie, below the run's rendezvous prefix.

What carries data lies under its rank or shard, then by round: S3 answers so many requests per second and prefix, and
in a round everybody reads of everybody. Numbers are padded, so that the keys of a prefix sort by round.
"""

from __future__ import annotations

CONTRIBUTIONS = "contributions/"
REDUCED = "reduced/"
SNAPSHOTS = "snapshots/"
TORCHFT = "torchft/"

# Who uploads what training begins with.
BEGINNER = "beginner.json"
# What all replicas must have set alike.
OPTIONS = "options.json"


def claim(rank: int, epoch: int) -> str:
    """Who holds a rank; whoever created the highest epoch does."""
    return f"claims/{rank:05d}/{epoch:06d}.json"


def contributions_of(rank: int) -> str:
    """What the processes of a rank give to all rounds."""
    return f"{CONTRIBUTIONS}{rank:05d}/"


def contribution(round_: int, rank: int, epoch: int) -> str:
    """What one process gives to a round."""
    return f"{contributions_of(rank)}{round_:08d}-{epoch:06d}"


def commit(round_: int, revision: int = 0) -> str:
    """The list of a round's members, or an amendment of it."""
    return f"commits/{round_:08d}.json" if revision == 0 else f"amendments/{round_:08d}-{revision:03d}.json"


def reduced_of(shard: int) -> str:
    """One shard of all rounds' means."""
    return f"{REDUCED}{shard:05d}/"


def reduced(round_: int, revision: int, shard: int) -> str:
    """One shard of a round's mean."""
    return f"{reduced_of(shard)}{round_:08d}-{revision:03d}"


def snapshots_of(shard: int) -> str:
    """One shard of all snapshots."""
    return f"{SNAPSHOTS}{shard:05d}/"


def snapshot(round_: int, source: str, shard: int) -> str:
    """One shard of the global state after a round, as `source` wrote it; round 0 is what training began with."""
    return f"{snapshots_of(shard)}{round_:08d}-{source}"


def before(folder: str, round_: int) -> str:
    """Where the keys of `round_` begin in the folder of a rank or a shard: all rounds before it sort before this."""
    return f"{folder}{round_:08d}"


def manifest(round_: int) -> str:
    """The last object of a snapshot: it is complete."""
    return f"manifests/{round_:08d}.json"


def torchft_states_of(shard: int) -> str:
    """One shard of what torchft's algorithms hold, after all rounds."""
    return f"{TORCHFT}{shard:05d}/"


def torchft_state(round_: int) -> str:
    """What torchft's algorithms hold after a round: one shard."""
    return before(torchft_states_of(0), round_)
