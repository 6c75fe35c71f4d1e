"""Replicas on the embedded HyperPod cluster: calls to its API, and how soon a rerun follows an end.

There is no peer: AWS's own command line polls a job by hand, and restarts nothing that the operator gave up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import median, quantiles

from bench.deployed_stack import KUBERNETES, Stack, open_stack
from bench.table import Row
from muster.contract import timestamps
from muster.local.faults import LostNode
from muster.options.hyperpod.local.cluster_settings import ClusterSettings

_REPLICAS = 4
_EXITS, _LOST_NODES = 20, 6
_WARM_UP = 3
_POLL_SECONDS = 0.02
# The time of the end is in the reason of the attempt: the cluster's own times are whole seconds.
_FAILURE = "pathlib.Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'), 'output', 'failure')"
_ENDING = [
    *("python", "-c"),
    f"import os, pathlib, sys, time; {_FAILURE}.write_text(f'ended at {{time.time()}}'); sys.exit(1)",
]
_LASTING = ["python", "-c", "import time; time.sleep(3600)"]
_END = re.compile(r"ended at (\d+\.\d+)")
_CLUSTER = {"backend": "hyperpod", "hyperpod": {"restarts": {"max_retries": 0}}}


def run() -> list[Row]:
    """Calls of a clean run, then the delays of many reruns after exits and after lost nodes."""
    with open_stack(ClusterSettings(nodes=_REPLICAS, replace_seconds=0.5)) as stack:
        noop = {"entrypoint": ["python", "-c", "pass"], "replicas": _REPLICAS, **_CLUSTER}
        stack.train("warm-up", noop)
        clean = stack.count_calls("clean", noop)
        exits = _exit_delays(stack, "exits")
        lost = list(_lost_node_delays(stack))
    calls = {kind: count for kind, count in clean.items() if kind.startswith(KUBERNETES)}
    all_calls = sum(calls.values())
    note = f"{all_calls} calls of all functions, {_REPLICAS} replicas"
    return [
        *(Row(f"clean run: {kind}", count / _REPLICAS, "calls/replica") for kind, count in sorted(calls.items())),
        Row("clean run: calls to the cluster's API", all_calls / _REPLICAS, "calls/replica", "<= 6", note=note),
        *_rows("program ended to next attempt created", exits, "< 2", f"{len(exits)} exits in a row, functions warm"),
        *_rows("node lost to next attempt created", lost, "< 30", f"{len(lost)} nodes, noticed after 1 s, as set here"),
    ]


def _rows(name: str, delays: list[float], aim: str, note: str) -> Iterator[Row]:
    yield Row(f"{name}, median", median(delays), "s", note=note)
    yield Row(f"{name}, p95", quantiles(delays, n=20)[-1], "s", aim, note=note)


def _exit_delays(stack: Stack, name: str) -> list[float]:
    """Seconds from each end of a program to the creation of the next attempt's job."""
    budget = {"user-code": {"max_reruns": _EXITS + _WARM_UP, "delay_seconds": 0}}
    result = stack.train(name, {"entrypoint": _ENDING, "replicas": 1, "reruns": budget, **_CLUSTER}, succeeds=False)
    attempts = result.replicas[0].attempts
    ends = [float(found[1]) if (found := _END.search(one.reason)) else None for one in attempts]
    delays = [
        timestamps.parse(later.launched_at).timestamp() - end
        for (_, later), end in zip(pairwise(attempts), ends, strict=False)
        if later.launched_at is not None and end is not None
    ]
    return delays[_WARM_UP:]


def _lost_node_delays(stack: Stack) -> Iterator[float]:
    """Seconds from the loss of each node to the creation of the next attempt's job."""
    name, budget = "lost", {"infrastructure": {"max_reruns": _LOST_NODES, "delay_seconds": 0}}
    spec = {"entrypoint": _LASTING, "replicas": 1, "reruns": budget, **_CLUSTER}
    with ThreadPoolExecutor(max_workers=1) as pool:
        ended = pool.submit(stack.train, name, spec, succeeds=False)
        times = []
        for attempt in range(1, _LOST_NODES + 2):
            fault = stack.cloud.faults.add(LostNode(job=f"*-{name}-r0-a{attempt}", after_seconds=0.5))
            while not fault.fired:
                if ended.done():
                    ended.result()
                time.sleep(_POLL_SECONDS)
            times.append(time.time())
        attempts = ended.result().replicas[0].attempts
    for at, later in zip(times, attempts[1:], strict=False):
        if later.launched_at is not None:
            yield timestamps.parse(later.launched_at).timestamp() - at
