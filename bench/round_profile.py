"""Where a round's time and CPU go, by stage, for models and groups of many sizes.

CPU per MB of the pseudo-gradient: each replica sends B(N+1)/N and receives 2B(N-1)/N bytes. The server's own CPU stands
beside it, and the same bytes moved by themselves (`bare`) for comparison. On a machine with fewer cores than processes
wall time is mostly waiting for a core; CPU is not. The timers themselves take a tenth: `python -m bench rendezvous`
times rounds without them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.rounds.group import Group, RoundCost, fits, running_group
from bench.rounds.server import Server, running_server
from bench.table import Row

_MIB = 2**20
_SIZES_MIB = (1, 16, 64, 256, 1024)
_REPLICAS = (2, 4, 8, 16)
_ROUNDS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


def run() -> list[Row]:
    """Rows for each size and number of replicas that fit into the memory."""
    rows: list[Row] = []
    with running_server() as server:
        for mib in _SIZES_MIB:
            for replicas in _REPLICAS:
                if fits(replicas, mib):
                    rows += _rows(server, replicas, mib)
    return rows


def _rows(server: Server, replicas: int, mib: int) -> Iterator[Row]:
    costs: dict[str, list[tuple[RoundCost, float]]] = {"muster": [], "bare": []}
    with running_group(server, replicas, mib * _MIB // 4) as group:
        for scheme in costs:
            group.prepare(scheme)
        for repetition in range(_ROUNDS + 1):
            for scheme, found in costs.items():
                cost = _measured(server, group, scheme)
                if repetition:  # the first round's memory is new
                    found.append(cost)
        server.delete(f"bench/{group.prefix}", above_bytes=0)
    what, megabytes = f"N={replicas}, B={mib} MiB", replicas * mib * _MIB / 1e6
    bare = _cpu(costs["bare"]) / megabytes * 1e3
    note = _note(costs["muster"], megabytes)
    yield Row(f"CPU of a round, {what}", _cpu(costs["muster"]) / megabytes * 1e3, "ms/MB", None, bare, note)


def _measured(server: Server, group: Group, scheme: str) -> tuple[RoundCost, float]:
    """A round, and the server's CPU seconds meanwhile."""
    before = _server_cpu(server)
    cost = group.round(scheme, profile=scheme == "muster")
    group.clear()
    return cost, _server_cpu(server) - before


def _server_cpu(server: Server) -> float:
    found = 0
    for process in server.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        found += int(fields[11]) + int(fields[12])
    return found / _TICKS


def _cpu(costs: list[tuple[RoundCost, float]]) -> float:
    """The replicas' CPU seconds of a round, all together."""
    seconds: list[float] = [
        sum(answer["user_seconds"] + answer["kernel_seconds"] for answer in cost.answers.values()) for cost, _ in costs
    ]
    return median(seconds)


def _note(costs: list[tuple[RoundCost, float]], megabytes: float) -> str:
    """ms of CPU per MB by stage, the largest first; and which share of the wall time the largest stages have."""
    cpu: dict[str, float] = defaultdict(float)
    wall: dict[str, float] = defaultdict(float)
    for cost, server_seconds in costs:
        for answer in cost.answers.values():
            all_seconds, stages = answer["user_seconds"] + answer["kernel_seconds"], answer["stages"]
            rest = answer["seconds"]
            for stage, (wall_seconds, cpu_seconds) in stages.items():
                cpu[stage] += cpu_seconds
                wall[stage] += wall_seconds
                all_seconds -= cpu_seconds
                rest -= wall_seconds
            cpu["client's threads and the rest"] += all_seconds
            cpu["(of all: kernel)"] += answer["kernel_seconds"]
            wall["rest"] += rest
        cpu["(server)"] += server_seconds
    share = 1e3 / megabytes / len(costs)
    whole = sum(wall.values())
    by_cpu = ", ".join(f"{stage} {seconds * share:.2f}" for stage, seconds in _largest(cpu))
    by_wall = ", ".join(f"{stage} {seconds / whole:.0%}" for stage, seconds in _largest(wall)[:5])
    return f"ms/MB: {by_cpu}; wall: {by_wall}; peer: bare moves"


def _largest(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])
