"""What S3 clients take to move the same bytes: CPU of the client's process per MB, ours with its checksums.

Each client has a process of its own; all send and read 64 MiB in turns, at the benchmarks' own S3 server. A plain
socket does the same requests with no client at all: that is what the kernel takes, and no client can take less. See
`bench/peers/store_client.py` for what each client does. awscrt is installed in an environment of its own, because
botocore uses it wherever it finds it: `make build/peers/.ready`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.peers.store_client import CLIENTS
from bench.peers.workers import Worker, running_workers
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server, running_server
from bench.table import Row
from bench.usage import Usage

MIB = 64
TURNS = 9
AIM = "<= 0.5"  # ms of CPU per MB moved
PEERS = Path("build/peers/bin/python")

_LIMIT_SECONDS = 600.0
_WAYS = ("sent", "received")
_FLOOR, _OURS = "socket", "muster"

Turns = Mapping[str, Sequence[Mapping[str, Usage]]]


def run() -> list[Row]:
    """All clients in turns; about a minute."""
    with running_server() as server:
        return rows(moved(server, MIB, TURNS), MIB)


def moved(server: Server, mib: int, turns: int) -> Turns:
    """What each client took in each turn; the first one, which also connects, is not counted."""
    found: dict[str, list[Mapping[str, Usage]]] = {name: [] for name in CLIENTS}
    workers = {name: Worker(_command(name, mib), client_environment(server, name)) for name in CLIENTS}
    with running_workers(workers, _LIMIT_SECONDS) as running:
        for turn in range(turns + 1):
            for name in CLIENTS:
                answer = running.answers([name])[name]
                server.delete(f"{BUCKET}/clients", above_bytes=0)
                if turn:
                    found[name].append({way: Usage(**answer[way]) for way in _WAYS})
    return found


def rows(turns: Turns, mib: int) -> list[Row]:
    """The row with the aim, and one for each client."""
    megabytes = mib * 2**20 / 1e6
    both = {name: [_cpu(turn, megabytes) for turn in found] for name, found in turns.items()}
    peers = {name: median(cpu) for name, cpu in both.items() if not name.startswith((_OURS, _FLOOR))}
    best = min(peers, key=lambda name: peers[name])
    ours, floor = both[_OURS], median(both[_FLOOR])
    note = (
        f"{min(ours):.2f} to {max(ours):.2f}, median of {len(ours)} turns, {mib} MiB each way; "
        f"the kernel alone (a plain socket) takes {floor:.2f}; peer: {best}, which does not verify what it reads"
    )
    name = "CPU of our S3 client per MB moved, both ways, checksums included"
    ratios = {
        other: median(mine / bare for mine, bare in zip(both[other], both[_FLOOR], strict=True))
        for other in (_OURS, best)
    }
    found = [
        Row(name, median(ours), "ms/MB", AIM, peers[best], note),
        Row("the same against a plain socket", ratios[_OURS], "x", None, ratios[best], "median of turns"),
    ]
    return found + [
        Row(f"CPU per MB moved, {name}", median(both[name]), "ms/MB", None, None, _note(turns[name], megabytes))
        for name in turns
    ]


def _cpu(turn: Mapping[str, Usage], megabytes: float) -> float:
    """Milliseconds per MB, of the bytes of both ways."""
    return 1e3 * sum(turn[way].cpu for way in _WAYS) / (len(_WAYS) * megabytes)


def _note(turns: Sequence[Mapping[str, Usage]], megabytes: float) -> str:
    """CPU by direction, how much of it is the kernel's, and wall time."""
    parts = []
    for way in _WAYS:
        usages = [turn[way] for turn in turns]
        cpu, kernel, wall = (
            1e3 * median(seconds) / megabytes
            for seconds in ([u.cpu for u in usages], [u.kernel for u in usages], [u.wall for u in usages])
        )
        parts.append(f"{way} {cpu:.2f} (kernel {kernel:.2f}), wall {wall:.2f}")
    return f"{'; '.join(parts)} ms/MB"


def _command(name: str, mib: int) -> list[str]:
    python = sys.executable
    if name == "awscrt":
        assert PEERS.is_file(), f"{PEERS} is missing: make build/peers/.ready"
        python = str(PEERS)
    return [python, "-m", "bench.peers.store_client", name, str(mib)]
