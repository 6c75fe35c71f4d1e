"""The rendezvous against its peers: bytes, requests, time, memory, faults and recovery, with real processes.

All schemes run in the same processes, in turns, over the same store and client and the same local S3 server
(`bench/rounds/server.py`). The time of a run at scale is estimated by a model: `bench/rounds/model.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import nan
from statistics import median
from typing import Any

from bench.rounds.group import Group, RoundCost, fits, running_group
from bench.rounds.model import model_rows
from bench.rounds.recovery import recovery_rows
from bench.rounds.server import Request, Server, running_server
from bench.table import Row

MIB = 2**20
_ELEMENTS_PER_MIB = MIB // 4
_COUNTED_MIB = 8
# Replicas and MiB: how often.
_TIMED = {(4, 16): 9, (8, 16): 9, (4, 64): 7, (8, 64): 7, (4, 256): 5, (8, 256): 5}
_TIMED |= {(2, 1024): 5, (4, 1024): 5, (8, 1024): 5}
_BARE_AIMS = {16: "<= 1.5", 64: "<= 1.25", 256: "<= 1.1", 1024: "<= 1.1"}
_SCHEMES = ("muster", "all-gather", "scatter-reduce", "bare")
_GRACE_SECONDS = 2.0
_DEATHS: dict[str, dict[str, Any]] = {
    "before contribute": {"die_at": "contributions/"},
    "after contribute": {"die_at": "contributions/", "after": True},
    "before reduce": {"die_at": "reduced/"},
    "after reduce, before gather": {"die_at": "reduced/", "after": True},
}


def run() -> list[Row]:
    """All rows; a few minutes."""
    rows: list[Row] = []
    with running_server() as server:
        for replicas in (4, 8, 16, 32):
            rows += _traffic_rows(server, replicas)
        timed: dict[tuple[int, int], dict[str, list[RoundCost]]] = {}
        for (replicas, mib), repetitions in _TIMED.items():
            if not fits(replicas, mib):
                note = "not measured: it does not fit into this machine's memory"
                rows.append(
                    Row(f"round against bare, N={replicas}, B={mib} MiB", nan, "x", _BARE_AIMS[mib], None, note)
                )
                continue
            timed[replicas, mib] = _timed(server, replicas, mib, repetitions)
            rows += _time_rows(replicas, mib, timed[replicas, mib])
        rows += [_memory_row(server, replicas) for replicas in (4, 8)]
        rows += _fault_rows(server, 8, 64)
        rows += recovery_rows(server, 256)
    measured = {
        case: {name: median(c.seconds for c in costs) for name, costs in t.items()} for case, t in timed.items()
    }
    return rows + model_rows(measured)


def _traffic_rows(server: Server, replicas: int) -> list[Row]:
    """Bytes and requests of one round, counted by the server."""
    bytes_in: dict[str, float] = {}
    for codec, schemes in (("int4", ["muster"]), ("fp32", ["all-gather", "muster"])):
        with running_group(server, replicas, _COUNTED_MIB * _ELEMENTS_PER_MIB, codec=codec) as group:
            for scheme in schemes:
                group.prepare(scheme)
                group.round(scheme)
                server.forget_requests()
                group.round(scheme)
                requests = server.requests()
                bytes_in[f"{scheme} {codec}"] = sum(request.sent for request in requests) / replicas
                group.clear()
    least = _COUNTED_MIB * MIB * (replicas - 1) / replicas
    ours, coded = bytes_in["muster fp32"], bytes_in["muster int4"]
    note = f"B = {_COUNTED_MIB} MiB, mean over the ranks, polling included, counted by the server"
    rows = [
        Row(
            f"bytes in, fp32, N={replicas}",
            ours / least,
            "B(N-1)/N",
            "<= 2.05",
            bytes_in["all-gather fp32"] / least,
            f"{note}; peer: all-gather",
        ),
        Row(f"bytes in, int4 against fp32, N={replicas}", coded / ours, "x", "<= 0.14", None, note),
    ]
    return rows + _request_rows(replicas, requests)


def _request_rows(replicas: int, requests: Iterable[Request]) -> list[Row]:
    kinds = Counter(_kind(request) for request in requests)
    puts, gets = kinds["PUT"] / replicas, kinds["GET"] / replicas
    polls = {name: count for name, count in sorted(kinds.items()) if name not in {"PUT", "GET"}}
    note = ", ".join(f"{count / replicas:.1f} {name}" for name, count in polls.items())
    return [
        Row(f"PUTs of data per rank, N={replicas}", puts, "requests", "<= 2", None, "B = 8 MiB"),
        Row(f"GETs of data per rank, N={replicas}", gets, "requests", f"<= {2 * (replicas - 1)}", None, "B = 8 MiB"),
        Row(f"other requests per rank, N={replicas}", sum(polls.values()) / replicas, "requests", None, None, note),
    ]


def _kind(request: Request) -> str:
    folder = (request.key.split("/") + [""] * 4)[3]  # a list names the bucket alone
    data = folder in {"contributions", "reduced"}
    if data and request.status in {200, 206} and (request.method == "PUT" or request.sent > 4096):
        return request.method
    found = "" if request.status in {200, 206} else f" {request.status}"
    return f"{request.method} {folder}{found}"


def _timed(server: Server, replicas: int, mib: int, repetitions: int) -> dict[str, list[RoundCost]]:
    """Rounds of all schemes, alternating; the first of each is discarded."""
    costs: dict[str, list[RoundCost]] = {scheme: [] for scheme in _SCHEMES}
    with running_group(server, replicas, mib * _ELEMENTS_PER_MIB) as group:
        for scheme in _SCHEMES:
            group.prepare(scheme)
        for repetition in range(repetitions + 1):
            for scheme in _SCHEMES:
                cost = group.round(scheme, digest=repetition == 0)
                group.clear()
                if repetition:
                    costs[scheme].append(cost)
                elif scheme == "muster":
                    _assert_equal(cost)
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    return costs


def _assert_equal(cost: RoundCost) -> None:
    digests = {answer["mean"] for answer in cost.answers.values()}
    assert len(digests) == 1, "the replicas' means differ"


def _time_rows(replicas: int, mib: int, costs: dict[str, list[RoundCost]]) -> list[Row]:
    seconds = {scheme: [cost.seconds for cost in series] for scheme, series in costs.items()}
    ours = seconds["muster"]
    spread = f"median of {len(ours)} pairs in turns, {min(ours):.2f} to {max(ours):.2f} s"
    what = f"N={replicas}, B={mib} MiB"
    rows = [Row(f"round, {what}", median(ours), "s", None, median(seconds["bare"]), "peer: bare moves")]
    for peer, aim in (("all-gather", "< 1"), ("scatter-reduce", "< 1"), ("bare", _BARE_AIMS[mib])):
        ratio = median(mine / theirs for mine, theirs in zip(ours, seconds[peer], strict=True))
        rows.append(Row(f"round against {peer}, {what}", ratio, "x", aim, median(seconds[peer]), f"{spread}; peer: s"))
    return rows


def _memory_row(server: Server, replicas: int) -> Row:
    """The first round of new processes, so that all growth of their memory is due to this round."""
    mib = 256
    with running_group(server, replicas, mib * _ELEMENTS_PER_MIB) as group:
        group.prepare("muster")
        cost = group.round("muster")
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    added = max(answer["added_mib"] for answer in cost.answers.values()) / mib
    note = "the worst rank's peak in its first round, less what it held before (the gradient is there)"
    return Row(f"extra peak memory, N={replicas}, B={mib} MiB", added, "B", "<= 2.5", None, note)


def _fault_rows(server: Server, replicas: int, mib: int) -> list[Row]:
    rows = []
    for name, death in _DEATHS.items():
        with running_group(server, replicas, mib * _ELEMENTS_PER_MIB, grace_seconds=_GRACE_SECONDS) as group:
            group.prepare("muster")
            _round_and_clear(group)  # the first round's memory is new
            normal = median(_round_and_clear(group) for _ in range(3))
            cost = group.round("muster", {1: death}, digest=True)
            _assert_equal(cost)
            server.delete(f"bench/{group.prefix}", above_bytes=0)
        excess = (cost.seconds - normal - _GRACE_SECONDS) / normal
        note = f"{cost.seconds:.2f} s; a normal round {normal:.2f} s, grace window {_GRACE_SECONDS:g} s, B = {mib} MiB"
        rows.append(
            Row(f"1 of {replicas} killed {name}: time beyond round and grace", excess, "rounds", "<= 0.1", None, note)
        )
    return rows


def _round_and_clear(group: Group) -> float:
    seconds = group.round("muster").seconds
    group.clear()
    return seconds
