"""A DiLoCo exchange by torchft's own process group against Muster's round, for the same model and optimizers.

torchft's replicas reach each other: its manager asks a lighthouse who takes part, and ProcessGroupGloo reduces in a
ring. Muster's meet in the local S3 server alone, and every byte goes through it. Both work on loopback, in turns, on
the same cores, on which Muster's server has to run too. Replicas that share no network cannot use torchft's process
group at all.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers.workers import Worker, Workers, running_workers
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server, running_server
from bench.table import Row

MIB = 64
TENSORS = 16  # of the model, all of the same size: torchft reduces each by itself
REPLICAS = (2, 4)
TURNS = 7

_LIMIT_SECONDS = 900.0
_OURS, _PEER = "muster", "torchft"
_SMALL_BYTES = 65_536


@dataclass(frozen=True)
class Sync:
    """One exchange: seconds until the last replica has finished; CPU seconds of all, and bytes that all move."""

    seconds: float
    cpu: float
    moved: int


Turns = Mapping[str, Sequence[Sync]]


def run() -> list[Row]:
    """Rows for each number of replicas; a few minutes."""
    with running_server() as server:
        return [row for replicas in REPLICAS for row in rows(synced(server, replicas, MIB, TURNS), replicas, MIB)]


def synced(server: Server, replicas: int, mib: int, turns: int) -> Turns:
    """Exchanges of both systems in turns. The first one is not counted: Muster stores the run's initial state in it."""
    prefix = f"rendezvous/{uuid.uuid4().hex}/"
    found: dict[str, list[Sync]] = {_PEER: [], _OURS: []}
    with ExitStack() as stack:
        command = [sys.executable, "-m", "bench.peers.lighthouse", str(replicas)]
        lighthouse = stack.enter_context(running_workers({"lighthouse": Worker(command, os.environ)}, _LIMIT_SECONDS))
        where = {_PEER: lighthouse.answers()["lighthouse"]["address"], _OURS: f"s3://{BUCKET}/{prefix}"}
        groups = {
            system: stack.enter_context(
                running_workers(_replicas(server, system, replicas, mib, where[system]), _LIMIT_SECONDS)
            )
            for system in found
        }
        for turn in range(turns + 1):
            for system, group in groups.items():
                sync = _sync(server, group, system)
                for folder in ("contributions", "reduced"):
                    server.delete(f"{BUCKET}/{prefix}{folder}/", above_bytes=_SMALL_BYTES)
                if turn:
                    found[system].append(sync)
        server.delete(f"{BUCKET}/{prefix}", above_bytes=0)
    return found


def rows(turns: Turns, replicas: int, mib: int) -> list[Row]:
    """Time, CPU and bytes of an exchange; torchft's are the peer's."""
    what, size = f"N={replicas}, B={mib} MiB", mib * 2**20
    ours, peers = turns[_OURS], turns[_PEER]
    seconds = [sync.seconds for sync in ours]
    note = (
        f"{min(seconds):.2f} to {max(seconds):.2f} s, median of {len(ours)} turns; {TENSORS} tensors; "
        "pseudo-gradient, exchange and outer step; peer: torchft over gloo on loopback"
    )
    ratio = median(mine.seconds / theirs.seconds for mine, theirs in zip(ours, peers, strict=True))
    return [
        Row(f"DiLoCo exchange, {what}", median(seconds), "s", None, median(sync.seconds for sync in peers), note),
        Row(
            f"DiLoCo exchange against torchft's, {what}", ratio, "x", None, None, "median of pairs in turns; wall time"
        ),
        Row(
            f"CPU of all replicas in a DiLoCo exchange, {what}",
            median(sync.cpu for sync in ours),
            "s",
            None,
            median(sync.cpu for sync in peers),
            "without the S3 server's; peer: torchft",
        ),
        Row(
            f"bytes that a replica sends and receives in a DiLoCo exchange, {what}",
            _per_replica(ours, replicas, size),
            "B",
            None,
            _per_replica(peers, replicas, size),
            f"counted by the server; peer: torchft, counted by the kernel on loopback; a ring takes 4B(N-1)/N = "
            f"{4 * (replicas - 1) / replicas:.2f}",
        ),
    ]


def _per_replica(syncs: Sequence[Sync], replicas: int, size: int) -> float:
    """The least of all turns: what other processes send over loopback meanwhile is counted, too."""
    return min(sync.moved for sync in syncs) / replicas / size


def _replicas(server: Server, system: str, replicas: int, mib: int, where: str) -> dict[str, Worker]:
    module = [sys.executable, "-m", "bench.peers.diloco_replica", system]
    return {
        f"{system}, replica {rank}": Worker(
            [*module, *map(str, (rank, replicas, mib, TENSORS)), where], client_environment(server, f"rank{rank}")
        )
        for rank in range(replicas)
    }


def _sync(server: Server, group: Workers, system: str) -> Sync:
    server.forget_requests()
    before = _loopback_bytes()
    answers = group.answers().values()
    moved = _server_bytes(server) if system == _OURS else 2 * (_loopback_bytes() - before)
    assert len({answer["digest"] for answer in answers}) == 1, "the replicas' parameters differ"
    usages: list[Any] = [answer["sync"] for answer in answers]
    return Sync(max(usage["wall"] for usage in usages), sum(usage["user"] + usage["kernel"] for usage in usages), moved)


def _server_bytes(server: Server) -> int:
    return sum(request.received + request.sent for request in server.requests())


def _loopback_bytes() -> int:
    """What was sent over loopback since the machine started: each byte once."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))
