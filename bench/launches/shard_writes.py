"""How often functions that write the same shard of a roll-up meet, in the storm of a launch and in that of the ends.

Simulated with the product's shards and with the pauses of its compare-and-swap. Assumed: a GET of S3 takes 0.05 s and a
PUT 0.1 s, and a job is training within its first minutes.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from muster.contract.run.roll_up import shard_of
from muster.control.aws.store import pause_limit

_GET_SECONDS, _PUT_SECONDS = 0.05, 0.1


@dataclass(frozen=True)
class Storm:
    """What the writes of a storm took."""

    writes: int
    tries: int
    most_tries: int
    """Of one write."""

    @property
    def retried(self) -> float:
        """Tries beyond the first, for each write."""
        return self.tries / self.writes - 1


def launch_storm(replicas: int, per_second: float, statuses: int = 1, seed: int = 1) -> Storm:
    """Every replica is launched at the pace of the stack, and its job reports so many statuses within 3 minutes."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    begins = [(rank / per_second, rank) for rank in range(replicas)]
    reports = [(at + dice.uniform(0, 180), rank) for at, rank in begins for _ in range(statuses)]
    return _simulated(begins + reports, replicas, dice)


def end_storm(replicas: int, within_seconds: float, seed: int = 1) -> Storm:
    """Every job ends within so many seconds."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    return _simulated([(dice.uniform(0, within_seconds), rank) for rank in range(replicas)], replicas, dice)


def _simulated(writes: list[tuple[float, int]], replicas: int, dice: random.Random) -> Storm:
    written_at: dict[int, float] = {}
    # (when its PUT arrives, when its GET was answered, tie-break, shard, tries)
    puts = [
        (at + _GET_SECONDS + _PUT_SECONDS, at + _GET_SECONDS, index, shard_of(rank, replicas), 1)
        for index, (at, rank) in enumerate(writes)
    ]
    heapq.heapify(puts)
    tries = most = 0
    while puts:
        at, read_at, index, shard, tried = heapq.heappop(puts)
        tries += 1
        most = max(most, tried)
        if written_at.get(shard, -1.0) <= read_at:
            written_at[shard] = at
            continue
        again = at + dice.uniform(0, pause_limit(tried)) + _GET_SECONDS
        heapq.heappush(puts, (again + _PUT_SECONDS, again, index, shard, tried + 1))
    return Storm(len(writes), tries, most)
