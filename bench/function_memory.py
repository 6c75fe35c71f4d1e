"""What the functions take at different memory sizes: CPU seconds are measured, time and price follow from them.

The handlers run in the bundle that is deployed, against moto's server in another process: what botocore does for a call
is included, what AWS does is not. Lambda gives a function CPU in proportion to its memory, one vCPU at 1,769 MB, and
bills the start as well. Assumed: a core of Lambda is as fast as one here, nothing runs in parallel, and a call waits
for AWS as long as `_WAITS` says. There is no peer: sizes are compared with each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from bench.cold_import import ENVIRONMENT
from bench.launches import function_calls
from bench.launches.bill import GB_SECOND, INVOCATION
from bench.table import Row
from muster.infra.deploy.bundle import build_bundle
from muster.infra.settings.stack_settings import Platform

_SIZES = (128, 256, 512, 1_024, 1_769)
_FULL = 1_769  # Lambda: MB that come with one vCPU
_REPLICAS = 12
_RUN = "one"
_BUCKET, _PREFIX = ENVIRONMENT["MUSTER_BUCKET"], ENVIRONMENT["MUSTER_JOB_PREFIX"]
_SPEC = {"replicas": _REPLICAS, "trainer": "m:f", "image": "image:1", "instance_type": "ml.m5.large"}
_EXECUTION = f"arn:aws:states:us-east-1:123456789012:execution:muster:{_RUN}"
_S3_SECONDS = 0.03  # a request for a small object
_WAITS = {
    "plan": 6 * _S3_SECONDS,
    "attempt": 5 * _S3_SECONDS + 0.25,  # CreateTrainingJob and PutEvents
    "react, training": 4 * _S3_SECONDS,
    "react, an end": 3 * _S3_SECONDS + 0.05,  # SendTaskSuccess or SendTaskFailure
}


def run() -> list[Row]:
    """CPU of start and warm call by function, then seconds and dollars at each size."""
    rows = []
    with _functions() as call:
        plans = [_plan_event(f"warm-{number}") for number in range(6)]
        taken = {"plan": call("plan", [_plan_event(_RUN), *plans], accepted=True)}
        taken["attempt"] = call("attempt", [_attempt_event(rank) for rank in range(_REPLICAS)], launch="created")
        training = [_job_event(rank, "InProgress", "Training") for rank in range(_REPLICAS)]
        ends = [_job_event(rank, "Failed", "Failed") for rank in range(_REPLICAS)]
        taken["react, training"] = call("react", training, reaction="noted: InProgress/Training")
        taken["react, an end"] = call("react", ends, reaction="decided")
    for what, seconds in taken.items():
        rows += _rows(what, seconds)
    return rows


def _rows(what: str, taken: list[float]) -> list[Row]:
    start, first, warm = taken[0], taken[1], median(taken[2:])
    wait = _WAITS[what]
    rows = [
        Row(f"{what}: CPU of a start", start, "s", note="import and clients"),
        Row(f"{what}: CPU of the first call", first, "s"),
        Row(f"{what}: CPU of a warm call", warm, "s", note=f"median of {len(taken) - 2}"),
    ]
    for size in _SIZES:
        slower = max(1.0, _FULL / size)
        cold_seconds = (start + first) * slower + wait
        warm_seconds = warm * slower + wait
        price = INVOCATION + warm_seconds * size / 1_024 * GB_SECOND
        note = f"cold {cold_seconds:.2f} s; waits {wait:.2f} s for AWS"
        rows += [
            Row(f"{what} with {size:,} MB: a warm call", warm_seconds, "s", note=note),
            Row(f"{what} with {size:,} MB: a million warm calls", price * 1e6, "$"),
        ]
    return rows


@contextmanager
def _functions() -> Iterator[Any]:
    """Calls handlers of the unpacked bundle, each time in a fresh interpreter."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint, "PATH": os.environ["PATH"]}
        _prepare(endpoint)
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(build_bundle(Platform.LOCAL)) as archive:
                archive.extractall(folder)

            def call(name: str, events: list[Any], **expected: Any) -> list[float]:
                program = Path(function_calls.__file__).read_text(encoding="utf-8")
                command = [sys.executable, "-S", "-c", program, name]
                ended = subprocess.run(
                    command,
                    input=json.dumps(events),
                    cwd=folder,
                    env={**environment, "HOME": folder},
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=300,
                )
                said = json.loads(ended.stdout)
                assert all(expected.items() <= answer.items() for answer in said["answers"]), ended.stderr
                taken: list[float] = said["taken"]
                return taken

            yield call
    finally:
        server.stop()


def _prepare(endpoint: str) -> None:
    session = boto3.Session(
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region_name=ENVIRONMENT["AWS_REGION"],
    )
    session.client("s3", endpoint_url=endpoint).create_bucket(Bucket=_BUCKET)
    session.client("events", endpoint_url=endpoint).create_event_bus(Name=ENVIRONMENT["MUSTER_BUS"])


def _plan_event(name: str) -> dict[str, Any]:
    return {
        "execution_name": name,
        "execution_arn": _EXECUTION,
        "started_at": "2026-01-01T00:00:00.000Z",
        "input": _SPEC,
    }


def _attempt_event(rank: int) -> dict[str, Any]:
    token = f"AQCsAAAAKgAAAAMAAAAAAAAAA{rank:08}"
    entered = "2026-01-01T00:00:00.000Z"
    return {
        "run": _RUN,
        "rank": rank,
        "attempt": 1,
        "token": token,
        "entered_at": entered,
        "retry": 0,
        "catches_reruns": True,
    }


def _job_event(rank: int, status: str, secondary: str) -> dict[str, Any]:
    name = f"{_PREFIX}-{_RUN}-r{rank}-a1"
    steps = ["Starting", "Downloading", "Training", *([] if status == "InProgress" else [secondary])]
    detail = {
        "TrainingJobName": name,
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "SecondaryStatusTransitions": [
            {"Status": step, "StartTime": 1_767_225_600_000 + 60_000 * number, "StatusMessage": ""}
            for number, step in enumerate(steps)
        ],
        "LastModifiedTime": 1_767_225_900_000,
        "FailureReason": "InternalServerError: please try again" if status == "Failed" else None,
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        "Tags": {},
    }
    return {"source": "aws.sagemaker", "detail-type": "SageMaker Training Job State Change", "detail": detail}
