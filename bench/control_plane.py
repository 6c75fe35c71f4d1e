"""The control plane on the embedded cloud: AWS calls per replica, and how soon a rerun follows an end.

There is no peer: the executor that Muster replaces keeps its state in memory and polls Describe while a job runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from statistics import median, quantiles

from bench.deployed_stack import Stack, open_stack
from bench.table import Row
from muster.contract.names import JobName
from muster.local.faults import LostInstance

_REPLICAS = 4
_RERUNS, _COLD_RERUNS = 40, 20
# How often the processes of idle functions are ended: a job lasts longer, so every call of the two is a cold start.
_COLD_EVERY_SECONDS = 0.2
_WARM_UP_RERUNS = 5
_NOOP = {"entrypoint": ["python", "-c", "pass"]}
# Long enough that the job still runs when its instance is lost.
_BRIEF = {"entrypoint": ["python", "-c", "import time; time.sleep(2)"]}


def run() -> list[Row]:
    """Calls of a clean run and of one with a rerun, then the delay of many reruns in a row; the cloud's own start."""
    with open_stack() as stack:
        stack.train("warm-up", {**_NOOP, "replicas": _REPLICAS})
        clean = stack.count_calls("clean", {**_NOOP, "replicas": _REPLICAS})
        stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
        rerun = stack.count_calls("rerun", {**_BRIEF, "replicas": _REPLICAS})
        delays = _rerun_delays(stack, "delays", _RERUNS)
        with _cold_functions(stack):
            cold = _rerun_delays(stack, "cold", _COLD_RERUNS)
    rows = [_calls_row("clean run", kind, clean[kind], _REPLICAS) for kind in sorted(clean)]
    rows += [_calls_row("one more rerun costs", kind, rerun[kind] - clean[kind], 1) for kind in sorted(rerun | clean)]
    p95, cold_p95 = quantiles(delays, n=20)[-1], quantiles(cold, n=20)[-1]
    cold_note = (
        f"{len(cold)} reruns in a row, react and attempt each in a new process, forked with its packages imported"
    )
    note = f"{len(delays)} reruns in a row, functions warm, from the job's end to the next job's creation"
    return [
        *rows,
        Row("embedded cloud, from its start to its first answer", stack.cloud_seconds, "s", "< 5"),
        Row("terminal event to next CreateTrainingJob, median", median(delays), "s", note=note),
        Row("terminal event to next CreateTrainingJob, p95", p95, "s", "<= 0.05", note=note),
        Row("the same with cold functions, median", median(cold), "s", note=cold_note),
        Row("the same with cold functions, p95", cold_p95, "s", "<= 1", note=cold_note),
    ]


def _calls_row(what: str, kind: str, calls: int, replicas: int) -> Row:
    note = f"{calls} calls, {replicas} replicas" if replicas > 1 else "against the clean run"
    return Row(f"{what}: {kind}", calls / replicas, "calls/replica", note=note)


@contextmanager
def _cold_functions(stack: Stack) -> Iterator[None]:
    """Every call of react and attempt begins with a cold start: their idle processes are ended again and again."""
    functions = stack.cloud.client("lambda")
    pages = chain.from_iterable(page["Functions"] for page in functions.get_paginator("list_functions").paginate())
    names = [
        one["FunctionName"] for one in pages if "-React" in one["FunctionName"] or "-Attempt" in one["FunctionName"]
    ]
    done = threading.Event()

    def end_idle() -> None:
        count = 0
        while not done.wait(_COLD_EVERY_SECONDS):
            count += 1
            for name in names:
                functions.update_function_configuration(FunctionName=name, Description=f"cold {count}")

    ending = threading.Thread(target=end_idle, daemon=True)
    ending.start()
    try:
        yield
    finally:
        done.set()
        ending.join()


def _rerun_delays(stack: Stack, name: str, reruns: int) -> list[float]:
    """Seconds from each end of an attempt to the creation of the next one's job."""
    stack.cloud.faults.add(LostInstance(job=f"*-{name}-*", count=reruns))
    budget = {"infrastructure": {"max_reruns": reruns}}
    result = stack.train(name, {**_BRIEF, "replicas": 1, "reruns": budget})
    sagemaker = stack.cloud.client("sagemaker")
    jobs = [
        sagemaker.describe_training_job(TrainingJobName=str(JobName(stack.outputs["JobPrefix"], name, 0, attempt)))
        for attempt in range(1, len(result.replicas[0].attempts) + 1)
    ]
    delays = [
        (later["CreationTime"] - earlier["LastModifiedTime"]).total_seconds() for earlier, later in pairwise(jobs)
    ]
    return delays[_WARM_UP_RERUNS:]
