"""Rounds of 512 replicas over one partition of S3, in virtual time: nobody is lost, and they end at the rate of S3.

On request only: the replicas' own code makes more than a million requests.
"""

from __future__ import annotations

from bench.rounds.crowd import crowd
from bench.table import Row

ON_REQUEST = True
_REPLICAS = 512
_PARAMETERS = {"124M": 124_000_000, "1B": 1_000_000_000}


def run() -> list[Row]:
    """Replicas lost, and the time of a round beside that of its requests at the partition's rates."""
    rows = []
    for name, parameters in _PARAMETERS.items():
        found = crowd(_REPLICAS, parameters)
        case = f"one partition of S3, N={_REPLICAS}, {name} fp32"
        bound, note = (
            found.bound_seconds,
            f"{found.refused:,} requests refused; {sum(found.requests.values()):,} served",
        )
        rows += [
            Row(f"{case}: replicas lost", found.lost, "replicas", "== 0", note=note),
            Row(
                f"{case}: round against the rate's bound", found.seconds / bound, "x", "<= 1.2", None, f"{bound:.0f} s"
            ),
        ]
    return rows
