"""Replicas of one, two and four processes in one run: the bytes that each reads, and the memory of each process.

B is the model as float32. *Extra* memory is the resident memory of a process at its peak, less the peak of the same
process in the same training before it creates DiLoCo: model, gradients, inner optimizer, PyTorch and boto3 are not in
it. From the start of DiLoCo to the end of the run, so the initial state, the snapshots and the final model are in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from bench.replicas import Training, metrics_of
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server, running_server
from bench.table import Row

PROCESSES = (1, 2, 4)
MIB = 256
ROUNDS = 3
COUNTED_ROUND = 2

_WIDTH = 1024
_LAYERS = MIB * 2**20 // (4 * _WIDTH * _WIDTH)
_LEAST = MIB * 2**20 * (len(PROCESSES) - 1) / len(PROCESSES)

Memory = dict[str, float]


def run() -> list[Row]:
    """All rows; about two minutes."""
    with running_server() as server:
        plain = _trained(server, "SGD")
        rows = [*_traffic_rows(server), *_memory_rows(plain)]
        server.delete(f"{BUCKET}/", above_bytes=0)
        rows.append(_inner_state_row(_trained(server, "AdamW")))
    return rows


def _trained(server: Server, optimizer: str) -> list[list[Memory]]:
    """The memory of the processes of each replica, in MiB."""
    server.forget_requests()
    training = Training(
        "bench.group_trainer:train",
        {"layers": _LAYERS, "width": _WIDTH, "rounds": ROUNDS, "optimizer": optimizer},
        PROCESSES,
        f"s3://{BUCKET}/rendezvous/{optimizer}/",
        [client_environment(server, _caller(rank)) for rank in range(len(PROCESSES))],
        snapshot_rounds=ROUNDS - 1,
    )
    lines = [metrics_of([printed]) for printed in training.printed()]
    return [[json.loads(line["memory"]) for line in of_replica if "memory" in line] for of_replica in lines]


def _caller(rank: int) -> str:
    return f"rank{rank}"


def _traffic_rows(server: Server) -> list[Row]:
    """Bytes that each replica reads in one round, counted by the server."""
    pattern = re.compile(rf"/(contributions|reduced)/\d+/{COUNTED_ROUND:08d}-|/commits/{COUNTED_ROUND:08d}\.")
    asked = [request for request in server.requests() if pattern.search(request.key)]
    read = [
        sum(request.sent for request in asked if request.caller == _caller(rank)) / _LEAST
        for rank in range(len(PROCESSES))
    ]
    note = f"N = {len(PROCESSES)} replicas in one run, B = {MIB} MiB, fp32, polling included, counted by the server"
    rows = [
        Row(f"bytes in per replica and round, {_counted(processes)}", found, "B(N-1)/N", "<= 2.03", None, note)
        for processes, found in zip(PROCESSES, read, strict=True)
    ]
    return [*rows, Row("the most bytes of the three against the least", max(read) / min(read), "x", "<= 1.01")]


def _memory_rows(replicas: Sequence[Sequence[Memory]]) -> list[Row]:
    rows = []
    for processes, found in reversed(list(zip(PROCESSES, replicas, strict=True))):
        part = MIB / processes
        extra = [(memory["finished"] - memory["without"]) / part for memory in found]
        held = max((memory["held"] - memory["before"]) / part for memory in found)
        phases = ", ".join(
            f"{max((memory[name] - memory['without']) / part for memory in found):.2f} {phase}"
            for name, phase in (("joined", "after joining"), ("trained", "after the rounds"))
        )
        unit = "B" if processes == 1 else f"B/{processes}"
        name = f"peak extra host memory per process, {_counted(processes)}"
        aim = "<= 2.5" if processes == max(PROCESSES) else None
        rows.append(Row(name, max(extra), unit, aim, held, f"B = {MIB} MiB; {phases}; peer: held between rounds"))
    return rows


def _inner_state_row(replicas: Sequence[Sequence[Memory]]) -> Row:
    found = replicas[-1]
    extra = max((memory["finished"] - memory["without"]) / (MIB / PROCESSES[-1]) for memory in found)
    note = "the averages of AdamW (2 B/4) are saved in the first round"
    name = f"the same with the state of AdamW, {PROCESSES[-1]} processes"
    return Row(name, extra, f"B/{PROCESSES[-1]}", None, None, note)


def _counted(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"
