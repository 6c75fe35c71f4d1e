"""Rounds over a store that is as slow as S3: what users will see, and what is left above the bytes.

The server answers after 10 to 30 ms and moves 87 MB/s over a connection (see `Pace`). All times are stretched, and
divided again, so that this machine's cores do not count.
"""

from __future__ import annotations

from statistics import median

from bench.rounds.group import running_group
from bench.rounds.recovery import paced_recovery_row
from bench.rounds.server import Pace, Server, running_server
from bench.table import Row
from muster.replica.rounds.round_context import CONNECTIONS

_MIB = 2**20
_PACE = Pace(stretch=10.0)
_ROUNDS = 5
_LATENCIES = 3  # a contribution, a shard, and reading them


def run() -> list[Row]:
    """Rounds of several sizes and codecs; about ten minutes."""
    rows: list[Row] = []
    with running_server(_PACE) as server:
        for replicas, mib, aim in ((8, 1, None), (8, 64, "<= 1.2"), (4, 64, None)):
            seconds = _seconds(server, replicas, mib)
            ideal = _ideal(replicas, mib)
            note = (
                f"{median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f}, median of {_ROUNDS}) against "
                f"{ideal:.3f} s: {CONNECTIONS} connections of {_PACE.bytes_per_second / 1e6:.0f} MB/s and "
                f"{_LATENCIES} latencies of {sum(_PACE.first_byte_seconds) / 2 * 1e3:.0f} ms"
            )
            name = f"round / (bytes at line rate + {_LATENCIES} latencies), N={replicas}, B={mib} MiB"
            rows.append(Row(name, median(seconds) / ideal, "x", aim, None, note))
        plain, coded = (_seconds(server, 4, 256, codec) for codec in ("fp32", "int4"))
        note = f"{median(coded):.2f} s against {median(plain):.2f} s, medians of {_ROUNDS}"
        rows.append(
            Row("int4 round / fp32 round, N=4, B=256 MiB", median(coded) / median(plain), "x", "<= 0.35", None, note)
        )
        rows.append(paced_recovery_row(server, 256, _PACE.stretch))
    return rows


def _seconds(server: Server, replicas: int, mib: int, codec: str = "fp32") -> list[float]:
    """The times of rounds, as S3 would have them."""
    found = []
    with running_group(server, replicas, mib * _MIB // 4, codec=codec, grace_seconds=600) as group:
        group.prepare("muster")
        for repetition in range(_ROUNDS + 1):
            cost = group.round("muster")
            group.clear()
            if repetition:  # the first one also connects
                found.append(max(answer["seconds"] for answer in cost.answers.values()) / _PACE.stretch)
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    return found


def _ideal(replicas: int, mib: int) -> float:
    """Seconds of a round whose bytes go over all connections at once, one direction after the other."""
    sent, received = (replicas + 1) / replicas, 2 * (replicas - 1) / replicas
    moved = (sent + received) * mib * _MIB / (CONNECTIONS * _PACE.bytes_per_second)
    return moved + _LATENCIES * sum(_PACE.first_byte_seconds) / 2
