"""How long a round would take on S3 itself: a model of requests, connections, hosts and prefixes.

A phase (N-1 ranged GETs, say) takes the longest of three: its waves of connections, the host's bandwidth, and what a
prefix answers per second. A round is contribute, commit, reduce, gather, one after the other. The same formulas, with
the numbers of the machine under test, are fitted to the rounds measured here; the error of that fit is a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, isqrt

import numpy as np

from bench.table import Row
from muster.replica.store.transport import PART_BYTES
from muster.replica.wire.blocks import CONNECTIONS, Blocks

_PARAMETERS = 10**9
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Site:
    """Where replicas and store are."""

    first_byte_seconds: float = 0.030
    connection_rate: float = 85e6  # bytes per second
    host_rate: float = 25e9 / 8
    replicas_per_host: int = 1
    connections: int = CONNECTIONS
    gets_per_second: float = 5500.0  # S3, per partition
    puts_per_second: float = 3500.0
    prefixes: int = 1  # partitions over which the objects of a phase are spread: a new run's prefixes share one
    refused: float = 0.01  # share of requests answered 503, each tried again
    retry_seconds: float = 0.05  # the mean of the first pause (full jitter up to 0.1 s)

    def phase(self, requests: int, each_bytes: float, *, everyone: int, rate: float) -> float:
        """Seconds for `requests` of `each_bytes` by every one of `everyone` replicas at the same time."""
        tried = requests * (1 + self.refused)
        wave = self.first_byte_seconds + each_bytes / self.connection_rate
        waves = ceil(tried / self.connections) * wave + (self.retry_seconds if self.refused else 0)
        host = self.replicas_per_host * requests * each_bytes / self.host_rate
        prefix = everyone * tried / (rate * self.prefixes)
        return max(waves, host, prefix)

    def put(self, each_bytes: float, everyone: int) -> float:
        """One object from each: in parts side by side where it is large."""
        parts = ceil(each_bytes / PART_BYTES)
        seconds = self.put_all(parts, each_bytes / parts, everyone)
        return seconds + (2 * self.first_byte_seconds if parts > 1 else 0)

    def put_all(self, objects: int, each_bytes: float, everyone: int) -> float:
        """Small objects from each, side by side."""
        return self.phase(objects, each_bytes, everyone=everyone, rate=self.puts_per_second)

    def get(self, requests: int, each_bytes: float, everyone: int) -> float:
        """`requests` objects or ranges by each."""
        return self.phase(requests, each_bytes, everyone=everyone, rate=self.gets_per_second)

    @property
    def commit_seconds(self) -> float:
        """Claims, headers, the commit, and the others' next look at it."""
        return 6 * self.first_byte_seconds


def flat_seconds(site: Site, replicas: int, size: float) -> float:
    """A round as it is implemented."""
    shards = Blocks(int(size / _FLOAT_BYTES)).shards_of_mean(replicas)
    own, each = ceil(shards / replicas), size / shards
    reduce = site.get((replicas - 1) * own, each, replicas) + site.put_all(own, each, replicas)
    return site.put(size, replicas) + site.commit_seconds + reduce + site.get(shards - own, each, replicas)


def two_level_seconds(site: Site, replicas: int, size: float, group: int) -> float:
    """Groups average among themselves, then the owners of the same shard in all groups do, and merge what they made.

    More bytes (each shard of B/G is written and read once more) for 2G + 2N/G requests per rank in place of 2N.
    """
    groups = replicas // group
    shard, piece = size / group, size / replicas
    inside = site.get(group - 1, shard, replicas) + site.put(shard, replicas)
    across = site.get(groups - 1, piece, replicas) + site.put(piece, replicas)
    merge = site.get(groups - 1, piece, group) + site.put(shard, group)
    gather = site.get(group, shard, replicas)
    return site.put(size, replicas) + 2 * site.commit_seconds + inside + across + merge + gather


def model_rows(measured: Mapping[tuple[int, int], Mapping[str, float]]) -> list[Row]:
    """Round times at 1e9 parameters, and how well the model fits the rounds measured: (replicas, MiB) to seconds."""
    size = float(_PARAMETERS * _FLOAT_BYTES)
    rows = [_fit_row({case: seconds["muster"] for case, seconds in measured.items()})]
    for replicas in (64, 256, 1024):
        spread = replace(Site(), prefixes=replicas)
        flat, parted = flat_seconds(Site(), replicas, size), flat_seconds(spread, replicas, size)
        two = two_level_seconds(Site(), replicas, size, isqrt(replicas))
        name = f"model of S3, 1e9 fp32, N={replicas}"
        asked = _gets_per_second(replicas, size)
        rows += [
            Row(f"{name}: flat, one partition", flat, "s", None, parted, "peer: S3 has given each rank a partition"),
            Row(f"{name}: two levels of {isqrt(replicas)}", two, "s", None, flat, "peer: flat"),
            Row(
                f"{name}: GETs per second", asked, "1/s", None, 5500.0, "if nothing limited them; peer: of a partition"
            ),
        ]
    first = next((n for n in range(16, 4097) if isqrt(n) ** 2 == n and _two_level_wins(n, size)), None)
    note = (
        "group size √N, one partition; smallest square number of replicas up to 4096" if first else "never up to 4096"
    )
    return [*rows, Row("model of S3: two levels win from N", float(first or "nan"), "replicas", None, None, note)]


def _two_level_wins(replicas: int, size: float) -> bool:
    site = Site()
    return two_level_seconds(site, replicas, size, isqrt(replicas)) < flat_seconds(site, replicas, size)


def _gets_per_second(replicas: int, size: float) -> float:
    """The request rate of the reduce phase, if S3 had no limit."""
    free = replace(Site(), prefixes=10**9)
    return replicas * (replicas - 1) / free.get(replicas - 1, size / replicas, replicas)


def _fit_row(measured: Mapping[tuple[int, int], float]) -> Row:
    """Fit this machine's transfer rate and the constant cost of a round to the rounds measured here."""
    cases = sorted(measured)
    # All replicas share one host, connections have no limit of their own: seconds = constant + bytes / rate.
    unit = replace(Site(), first_byte_seconds=0.0, connection_rate=1e15, host_rate=1.0, refused=0.0, prefixes=10**9)
    moved = [flat_seconds(replace(unit, replicas_per_host=n), n, mib * 2.0**20) for n, mib in cases]
    seconds = np.array([measured[case] for case in cases])
    # Relative errors, so that small rounds count as much as large ones.
    design = np.column_stack([np.ones(len(cases)), moved]) / seconds[:, None]
    (constant, slope), *_ = np.linalg.lstsq(design, np.ones(len(cases)), rcond=None)
    fitted = constant + slope * np.array(moved)
    worst = float(np.max(np.abs(fitted / seconds - 1)))
    note = (
        f"{len(cases)} cases: {constant:.2f} s + bytes at {1 / slope / 1e6:,.0f} MB/s for all replicas of the machine"
    )
    return Row("model against the rounds measured here: largest error", worst, "x", "<= 0.25", None, note)
