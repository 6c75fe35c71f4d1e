"""The S3 requests of the functions for each replica, where each event that calls react comes in turn.

On the embedded cloud (`control_plane`) a brief job often ends before the events of its statuses are handled, so there
the count differs from run to run. Here it is exact: the functions are the real ones, over the AWS in memory.
There is no peer: the executor that Muster replaces keeps its state in memory.
"""

from __future__ import annotations

from collections import Counter

from bench.table import Row
from muster.contract.aws.job_status import PASSING, JobStatus
from muster.control.react import JobStateChange
from muster.control.settle import finish_run
from tests.memory.harness import ControlHarness, budget

_REPLICAS = (8, 64)
_PROGRAM = {"entrypoint": ["python", "-c", "pass"], "trainer": None}
_STATUSES = ("Downloading", "Training", "Uploading")
_ENDS = {status.value for status in JobStatus if status.is_terminal}
_KINDS = {"GetObject": "GET", "PutObject": "PUT", "ListObjectsV2": "LIST"}
_AIMS_CLEAN = {"GetObject": "<= 5", "PutObject": "<= 3"}
_AIMS_RERUN = {"GetObject": "<= 3", "PutObject": "<= 2"}


def run() -> list[Row]:
    """Per replica: a clean run, and what one more rerun costs; up to 32 replicas have a shard of the roll-up each."""
    rows = []
    for replicas in _REPLICAS:
        clean, rerun = requests(replicas, 0), requests(replicas, 1)
        note, of = "each job passes through five statuses, of which two call react", f"of {replicas} replicas"
        for kind, name in _KINDS.items():
            count, aim = clean[kind] / replicas, _AIMS_CLEAN.get(kind)
            rows.append(Row(f"clean run {of}: {name}", count, "calls/replica", aim, note=note))
        for kind, name in _KINDS.items():
            more = (rerun[kind] - clean[kind]) / replicas
            rows.append(Row(f"one more rerun {of}: {name}", more, "calls/replica", _AIMS_RERUN.get(kind), note=note))
    return rows


def requests(replicas: int, reruns: int) -> Counter[str]:
    """The calls of S3 and of EventBridge from the first launch to the page of the run."""
    harness = ControlHarness()
    with harness.installed():
        run_ = harness.plan(replicas=replicas, **_PROGRAM)
        harness.cloud.calls.reset()
        for attempt in range(1, reruns + 2):
            for rank in range(replicas):
                harness.attempt(harness.request(rank, attempt, retry=0))
            _deliver(harness)
            for status in _STATUSES:
                for rank in range(replicas):
                    harness.cloud.training.advance(harness.job(rank, attempt), status)
                _deliver(harness)
            for rank in range(replicas):
                if attempt <= reruns:
                    harness.cloud.training.fail(harness.job(rank, attempt), "InternalServerError")
                else:
                    harness.cloud.training.complete(harness.job(rank, attempt))
            _deliver(harness)
        finish_run(harness.plane, run_, budget())
        billed = {"s3", "events"}
        return Counter(call.operation for call in harness.cloud.calls.log if call.service in billed)


def _deliver(harness: ControlHarness) -> None:
    """Call react for the events that the stack's rule lets through."""
    for event in harness.cloud.notifications.drain():
        if event["source"] != "aws.sagemaker":
            continue
        change = JobStateChange.model_validate(event["detail"])
        if change.TrainingJobStatus in _ENDS or change.SecondaryStatus not in PASSING:
            harness.react(change)
