"""The control plane on the embedded cloud: AWS calls per replica, and how soon a rerun follows an end.

There is no peer: the executor that Muster replaces keeps its state in memory and polls Describe while a job runs.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.table import Row
from infra.deploy import deploy
from infra.settings import Platform
from muster.contract.layout import RunLayout
from muster.contract.names import JobName
from muster.contract.result import Result
from muster.local import LocalCloud, Settings
from muster.local.faults import LostInstance

_REPLICAS = 4
_RERUNS = 40
_WARM_UP_RERUNS = 5
_TIMEOUT_SECONDS = 300.0
# The functions' roles are named after their constructs; SageMaker's own calls and the benchmark's are not counted.
_FUNCTION_ROLE = "Handler"
_NOOP = {"entrypoint": ["python", "-c", "pass"]}
# Long enough to be there when its instance is taken.
_BRIEF = {"entrypoint": ["python", "-c", "import time; time.sleep(2)"]}


def run() -> list[Row]:
    """Calls of a clean run and of one with a rerun, then the delay of many reruns in a row."""
    with _stack() as stack:
        stack.train("warm-up", {**_NOOP, "replicas": _REPLICAS})
        clean = stack.count_calls("clean", {**_NOOP, "replicas": _REPLICAS})
        stack.cloud.faults.add(LostInstance(job="*-r0-a1"))
        rerun = stack.count_calls("rerun", {**_BRIEF, "replicas": _REPLICAS})
        delays = stack.rerun_delays("delays")
    rows = [_calls_row("clean run", kind, clean[kind], _REPLICAS) for kind in sorted(clean)]
    rows += [_calls_row("one more rerun costs", kind, rerun[kind] - clean[kind], 1) for kind in sorted(rerun | clean)]
    p95 = quantiles(delays, n=20)[-1]
    note = f"{len(delays)} reruns in a row, functions warm, from the job's end to the next job's creation"
    return [
        *rows,
        Row("terminal event to next CreateTrainingJob, median", median(delays), "s", note=note),
        Row("terminal event to next CreateTrainingJob, p95", p95, "s", "< 1", note=note),
    ]


def _calls_row(what: str, kind: str, calls: int, replicas: int) -> Row:
    note = f"{calls} calls, {replicas} replicas" if replicas > 1 else "against the clean run"
    return Row(f"{what}: {kind}", calls / replicas, "calls/replica", note=note)


@dataclass(frozen=True)
class _Stack:
    """The stack on a cloud of its own."""

    cloud: LocalCloud
    outputs: dict[str, str]

    def train(self, name: str, spec: dict[str, Any]) -> Result:
        """One run from start to settlement."""
        stepfunctions = self.cloud.client("stepfunctions")
        execution = stepfunctions.start_execution(
            stateMachineArn=self.outputs["StateMachineArn"], name=name, input=json.dumps(spec)
        )["executionArn"]
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (status := stepfunctions.describe_execution(executionArn=execution)["status"]) == "RUNNING":
            if time.monotonic() > deadline:
                message = f"the run {name} did not end within {_TIMEOUT_SECONDS:.0f} s"
                raise TimeoutError(message)
            time.sleep(0.2)
        if status != "SUCCEEDED":
            message = f"the run {name} ended as {status}"
            raise RuntimeError(message)
        key = RunLayout(name).result
        body = self.cloud.client("s3").get_object(Bucket=self.outputs["BucketName"], Key=key)["Body"].read()
        return Result.from_json(body, key)

    def count_calls(self, name: str, spec: dict[str, Any]) -> Counter[str]:
        """The functions' AWS calls for one run, by kind."""
        self.cloud.calls.reset()
        self.train(name, spec)
        calls: Counter[str] = Counter()
        for call in self.cloud.calls.report():
            if _FUNCTION_ROLE in call.caller:
                calls[f"{call.service} {call.operation}"] += call.count
        return calls

    def rerun_delays(self, name: str) -> list[float]:
        """Seconds from each end of an attempt to the creation of the next one's job."""
        self.cloud.faults.add(LostInstance(job=f"*-{name}-*", count=_RERUNS))
        budget = {"infrastructure": {"max_reruns": _RERUNS}}
        result = self.train(name, {**_BRIEF, "replicas": 1, "reruns": budget})
        sagemaker = self.cloud.client("sagemaker")
        jobs = [
            sagemaker.describe_training_job(TrainingJobName=str(JobName(self.outputs["JobPrefix"], name, 0, attempt)))
            for attempt in range(1, len(result.replicas[0].attempts) + 1)
        ]
        delays = [
            (later["CreationTime"] - earlier["LastModifiedTime"]).total_seconds() for earlier, later in pairwise(jobs)
        ]
        return delays[_WARM_UP_RERUNS:]


@contextmanager
def _stack() -> Iterator[_Stack]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with LocalCloud.start(path / "cloud", Settings(port=0, end_with_parent=True)) as cloud:
            outputs = deploy(
                cloud.environment(),
                target=Platform.LOCAL,
                context={"replica_image": "muster-local/python:latest"},
                outputs=path / "outputs.json",
                log=path / "cdk.log",
            )
            yield _Stack(cloud, outputs)
