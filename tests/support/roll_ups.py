"""What a run's roll-up says, read as a client reads it."""

from __future__ import annotations

from muster.contract.layout import RunLayout
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from tests.memory.cloud import MemoryCloud


def entries(cloud: MemoryCloud, run: str) -> dict[int, ReplicaEntry]:
    """The entries by rank. Not a call: the log of the calls does not have it."""
    prefix = RunLayout(run).roll_up
    shards = (
        RollUpShard.from_json(found.body, key)
        for key, found in cloud.s3.objects(cloud.bucket).items()
        if key.startswith(prefix)
    )
    return {entry.rank: entry for shard in shards for entry in shard.replicas}
