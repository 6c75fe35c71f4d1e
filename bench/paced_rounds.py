"""Rounds over a store that is as slow as S3: what users will see, what is left above the bytes, and the peers' schemes.

The server answers after 10 to 30 ms and moves 87 MB/s over a connection (see `Pace`). All times are stretched, and
divided again, so that this machine's cores do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from bench.rounds.group import RoundCost, running_group
from bench.rounds.recovery import paced_recovery_row
from bench.rounds.server import Pace, Server, running_server
from bench.table import Row
from muster.replica.wire.blocks import CONNECTIONS

_MIB = 2**20
_PACE = Pace(stretch=20.0)
_ROUNDS = 5
_COMPARED = (8, 64)  # replicas and MiB
_OURS, _SCHEMES = "muster", ("muster", "scatter-reduce", "all-gather", "bare")
_PEER_ROUNDS = 3  # an all-gather of 8 replicas moves seven models over every replica's connections
_LATENCIES = 3  # a contribution, a shard, and reading them


def run() -> list[Row]:
    """Rounds of several sizes and codecs; about a quarter of an hour."""
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
        rows += peer_rows(_in_turns(server, *_COMPARED), *_COMPARED)
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
                found.append(_seconds_of(cost))
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    return found


def peer_rows(seconds: Mapping[str, Sequence[float]], replicas: int, mib: int) -> list[Row]:
    """Muster's round against other schemes, which were timed in turns with it."""
    ours, what = seconds[_OURS], f"N={replicas}, B={mib} MiB"
    rows = []
    for peer, aim in (("scatter-reduce", "< 1"), ("all-gather", "< 1"), ("bare", None)):
        ratio = median(mine / theirs for mine, theirs in zip(ours, seconds[peer], strict=True))
        note = (
            f"median of {len(ours)} pairs in turns; {median(ours):.3f} s ({min(ours):.3f} to {max(ours):.3f}) against "
            f"{median(seconds[peer]):.3f} s ({min(seconds[peer]):.3f} to {max(seconds[peer]):.3f}); peer: s"
        )
        rows.append(Row(f"paced round against {peer}, {what}", ratio, "x", aim, median(seconds[peer]), note))
    return rows


def _in_turns(server: Server, replicas: int, mib: int) -> dict[str, list[float]]:
    """The times of rounds of each scheme, as S3 would have them."""
    found: dict[str, list[float]] = {scheme: [] for scheme in _SCHEMES}
    with running_group(server, replicas, mib * _MIB // 4, grace_seconds=600) as group:
        for scheme in _SCHEMES:
            group.prepare(scheme)
        for repetition in range(_PEER_ROUNDS + 1):
            for scheme, times in found.items():
                cost = group.round(scheme)
                group.clear()
                if repetition:  # the first one also connects
                    times.append(_seconds_of(cost))
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    return found


def _seconds_of(cost: RoundCost) -> float:
    """Until the last replica has finished, as S3 would have it."""
    return float(max(answer["seconds"] for answer in cost.answers.values())) / _PACE.stretch


def _ideal(replicas: int, mib: int) -> float:
    """Seconds of a round whose bytes go over all connections at once, one direction after the other."""
    sent, received = (replicas + 1) / replicas, 2 * (replicas - 1) / replicas
    moved = (sent + received) * mib * _MIB / (CONNECTIONS * _PACE.bytes_per_second)
    return moved + _LATENCIES * sum(_PACE.first_byte_seconds) / 2
