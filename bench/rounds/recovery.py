"""How long a restarted replica takes to reach the current round of its run.

Run as `python -m bench.rounds.recovery WHAT COUNT URI`. WHAT is `train` (a run of one replica, some rounds beyond its
last snapshot), `recover` (the time from the start of the process to the first inner step, and from the end of its
imports), or `download` (the keys given on standard input, and nothing else).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event
from typing import Any

import numpy as np

from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server
from bench.table import Row
from muster.contract.layout import split_s3_uri
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.wire.blocks import CONNECTIONS

_PREFIX = "rendezvous/recovery/"
_SNAPSHOT_ROUNDS = 2
_ROUNDS = 3
_REPETITIONS = 5
_TIMEOUT_SECONDS = 60.0


def recovery_rows(server: Server, mib: int) -> list[Row]:
    """Recovery compared with a bare download of the same bytes, alternating."""
    costs, moved = _costs(server, mib)
    spent, bare = (median(cost[what] for cost in costs) for what in ("seconds", "bare"))
    note = (
        f"{spent:.2f} s from process start, interpreter and imports included "
        f"({median(cost['joining'] for cost in costs):.2f} s without them); {moved:,.0f} MiB: snapshot and 1 round"
    )
    ratio, joining = (median(cost[what] / cost["bare"] for cost in costs) for what in ("seconds", "joining"))
    return [
        Row(f"recovery against a bare download, B={mib} MiB", ratio, "x", "<= 1.7", bare, f"{note}; peer: s"),
        Row(f"the same without interpreter and imports, B={mib} MiB", joining, "x", None, bare, "peer: s"),
    ]


def paced_recovery_row(server: Server, mib: int, stretch: float) -> Row:
    """Recovery over a store as slow as S3, whose times are `stretch` times as long.

    Imports and the interpreter are left out: this machine's would be divided by `stretch`.
    """
    costs, moved = _costs(server, mib)
    ratio = median(cost["joining"] / cost["bare"] for cost in costs)
    spent, bare = (median(cost[what] for cost in costs) / stretch for what in ("joining", "bare"))
    note = f"{spent:.2f} s without interpreter and imports; {moved:,.0f} MiB: snapshot and 1 round; peer: s"
    return Row(f"recovery / a bare download, B={mib} MiB", ratio, "x", "<= 1.7", bare, note)


def _costs(server: Server, mib: int) -> tuple[list[dict[str, float]], float]:
    """Seconds of each repetition: `seconds`, `joining` and `bare`; and how many MiB were moved."""
    count = str(mib * 2**18)
    _process(server, "train", count)
    costs, moved = [], 0.0
    for _ in range(_REPETITIONS):
        server.forget_requests()
        ours = _process(server, "recover", count)
        asked = [request for request in server.requests() if request.method == "GET" and request.sent > 4096]
        # In the order in which they were first asked for; a large object is read in several ranges.
        keys = list(dict.fromkeys(request.key.removeprefix(f"{BUCKET}/{_PREFIX}") for request in asked))
        moved = sum(request.sent for request in asked) / 2**20
        costs.append({**ours, "bare": _process(server, "download", count, json.dumps(keys))["seconds"]})
    server.delete(f"{BUCKET}/{_PREFIX}", above_bytes=0)
    return costs, moved


def _process(server: Server, what: str, count: str, given: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.rounds.recovery", what, count, f"s3://{BUCKET}/{_PREFIX}", str(time.time())]
    answer = subprocess.run(
        command,
        env=client_environment(server, what),
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def main(what: str, count: int, uri: str, started: float) -> None:
    """Print one JSON object."""
    store = S3ObjectStore(*split_s3_uri(uri))
    if what == "download":
        keys = json.load(sys.stdin)
        began = time.perf_counter()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(store.read, keys))
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
        return
    began = time.perf_counter()
    quorum = Quorum(1, 1, 1.0)
    context = RoundContext(store, "recovery", quorum, _TIMEOUT_SECONDS, Event(), snapshot_rounds=_SNAPSHOT_ROUNDS)
    parameters = np.zeros(count, np.float32)
    outer = DiLoCo(Rendezvous.open(context, 0, 1 if what == "train" else 2, Metrics()), parameters)
    if what == "recover":
        assert outer.round == _ROUNDS
        joining = time.perf_counter() - began
        print(json.dumps({"seconds": time.time() - started, "joining": joining}), flush=True)
        os._exit(0)
    while outer.round < _ROUNDS:
        parameters -= np.random.default_rng(outer.round).standard_normal(count, np.float32)
        outer.step()
    print("{}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
