"""How long a restarted replica takes to reach the current round of its run.

Run as `python -m bench.rounds.recovery WHAT COUNT URI`. WHAT is `train` (a run of one replica, some rounds beyond its
last snapshot) or `download` (the keys given on standard input, and nothing else). The replica that recovers is
`bench/rounds/recovering.py`: the program of a container, with a clock at its phases.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server
from bench.table import Row
from muster.contract.layout import split_s3_uri
from muster.contract.run.run_document import RunDocument
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.round_context import RoundContext, Stops
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.wire.blocks import CONNECTIONS

_PREFIX = "rendezvous/recovery/"
_RUN = "recovery"
_SNAPSHOT_ROUNDS = 2
_ROUNDS = 3
_REPETITIONS = 5
_TIMEOUT_SECONDS = 60.0
_PLAIN, _TORCH = "recovered", "recovered_torch"
_PHASES = ("own imports", "imports", "find", "download", "join", "verify", "unpack", "apply")


def recovery_rows(server: Server, mib: int) -> list[Row]:
    """Recovery compared with a bare download of the same bytes, alternating."""
    rows, where = [], f"B={mib} MiB"
    for trainer, what in ((_PLAIN, ""), (_TORCH, " and PyTorch's imports")):
        if trainer == _TORCH and find_spec("torch") is None:
            continue
        costs, moved = _costs(server, mib, trainer)
        ratios = sorted(cost["seconds"] / cost["bare"] for cost in costs)
        spent, bare, joining = (median(cost[name] for cost in costs) for name in ("seconds", "bare", "join"))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median of {len(ratios)} in turns"
        note = f"{spread}; {spent:.2f} s from process start; {moved:,.0f} MiB: snapshot and 1 round"
        rows += [
            Row(f"recovery{what} against a bare download, {where}", median(ratios), "x", _aim(trainer), bare, note),
            Row(f"recovery{what}: from the front end's creation on, {where}", joining, "s", None, bare, _told(costs)),
        ]
        if trainer == _TORCH:
            beyond = [(cost["seconds"] - cost["own imports"] - cost["imports"]) / cost["bare"] for cost in costs]
            note = f"{min(beyond):.2f} to {max(beyond):.2f}, median of {len(beyond)}; all imports left out; peer: s"
            rows.append(
                Row(f"recovery{what}: what they do not hide, {where}", median(beyond), "x", "<= 1.7", bare, note)
            )
    return rows


def _aim(trainer: str) -> str | None:
    return "<= 1.7" if trainer == _PLAIN else None


def _told(costs: Sequence[dict[str, float]]) -> str:
    """The medians of all phases."""
    found = (f"{phase} {median(cost[phase] for cost in costs):.2f}" for phase in _PHASES)
    return f"s: {', '.join(found)} (the last three: CPU of all threads); peer: a bare download"


def paced_recovery_row(server: Server, mib: int, stretch: float) -> Row:
    """Recovery over a store as slow as S3, whose times are `stretch` times as long.

    The interpreter and the imports are left out: this machine's would be divided by `stretch`.
    """
    costs, moved = _costs(server, mib, _PLAIN)
    own = [cost["seconds"] - cost["own imports"] for cost in costs]
    ratios = sorted(seconds / cost["bare"] for seconds, cost in zip(own, costs, strict=True))
    spent, bare = median(own) / stretch, median(cost["bare"] for cost in costs) / stretch
    note = (
        f"{spent:.2f} s without interpreter and imports ({ratios[0]:.2f} to {ratios[-1]:.2f}, median of "
        f"{len(ratios)}); "
        f"{moved:,.0f} MiB: snapshot and 1 round; peer: s"
    )
    return Row(f"recovery / a bare download, B={mib} MiB", median(ratios), "x", "<= 1.7", bare, note)


def _costs(server: Server, mib: int, trainer: str) -> tuple[list[dict[str, float]], float]:
    """Seconds of each repetition: `seconds` in all, `bare`, and each phase; and how many MiB were moved."""
    count = mib * 2**18
    _process(server, "train", count)
    costs, moved = [], 0.0
    for repetition in range(_REPETITIONS + 1):
        server.forget_requests()
        ours = _recovered(server, trainer, count)
        asked = [request for request in server.requests() if request.method == "GET" and request.sent > 4096]
        # In the order in which they were first asked for; a large object is read in several ranges.
        keys = list(dict.fromkeys(request.key.removeprefix(f"{BUCKET}/{_PREFIX}") for request in asked))
        moved = sum(request.sent for request in asked) / 2**20
        bare = _process(server, "download", count, json.dumps(keys))["seconds"]
        if repetition:  # the first one also compiles
            costs.append({**ours, "bare": bare})
    server.delete(f"{BUCKET}/{_PREFIX}", above_bytes=0)
    return costs, moved


def _recovered(server: Server, trainer: str, count: int) -> dict[str, float]:
    """A replica that was restarted, from its start to its first inner step."""
    document = RunDocument(
        run=_RUN,
        plan_digest="0",
        replicas=1,
        trainer=f"bench.rounds.{trainer}:train",
        kwargs={"count": count, "rounds": _ROUNDS},
        rendezvous_uri=f"s3://{BUCKET}/{_PREFIX}",
        min_participants=1,
        grace_seconds=1.0,
        timeout_seconds=_TIMEOUT_SECONDS,
        snapshot_rounds=_SNAPSHOT_ROUNDS,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.json"
        path.write_bytes(document.to_json())
        variables = {
            "MUSTER_DOCUMENT": path.as_uri(),
            "MUSTER_RUN": _RUN,
            "MUSTER_RANK": "0",
            "MUSTER_ATTEMPT": "2",
            "SAGEMAKER_BASE_DIR": folder,
        }
        return _answer(server, "recover", ["bench.rounds.recovering", str(time.time())], variables)


def _process(server: Server, what: str, count: int, given: str = "") -> dict[str, float]:
    return _answer(server, what, ["bench.rounds.recovery", what, str(count), f"s3://{BUCKET}/{_PREFIX}"], {}, given)


def _answer(
    server: Server, name: str, program: Sequence[str], variables: dict[str, str], given: str = ""
) -> dict[str, float]:
    """What a program says in its last line."""
    answer = subprocess.run(
        [sys.executable, "-m", *program],
        env=client_environment(server, name) | variables,
        input=given,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def main(what: str, count: int, uri: str) -> None:
    """Print one JSON object."""
    store = S3ObjectStore(*split_s3_uri(uri))
    if what == "download":
        keys = json.load(sys.stdin)
        began = time.perf_counter()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(store.read, keys))
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
        return
    quorum = Quorum(1, 1, 1.0)
    context = RoundContext(store, _RUN, quorum, _TIMEOUT_SECONDS, Stops(), snapshot_rounds=_SNAPSHOT_ROUNDS)
    parameters = np.zeros(count, np.float32)
    outer = DiLoCo(Rendezvous.open(context, 0, 1, Metrics()), parameters)
    while outer.round < _ROUNDS:
        parameters -= np.random.default_rng(outer.round).standard_normal(count, np.float32)
        outer.step()
    print("{}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
