"""The client: what `import muster` and `muster --help` take, what a status costs, and whether a follower loses lines.

The command's peer is `import boto3`, which users of the AWS CLI know.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import boto3

from bench.looks import WrittenRun, watch
from bench.table import Row
from muster import Muster, Run
from muster.client.aws.cloud import Cloud
from muster.client.logs.log_lines import LogQuery
from muster.client.logs.log_reader import POLL_SECONDS, LogReader
from muster.contract.names import TRAINING_LOG_GROUP, JobName
from muster.local import LocalCloud, Settings

_REPETITIONS = 9
_REPLICAS = 1_000
_SIZES = (10, 1_000, 10_000)
_CHANGES = 3
_WATCH_SECONDS = 20.0
_RANKS = 64
_LINES = 100_000
_WRITE_SECONDS = 60.0
_MACHINE = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}}


def run() -> list[Row]:
    """The import and the command first, then the others on an embedded cloud whose jobs stay in their first phase."""
    rows = [_import(), *_help()]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, end_with_parent=True, phase_seconds=3_600)
        # All AWS calls go to the embedded cloud, and none to an account that this shell is configured for.
        with LocalCloud.start(Path(folder), settings) as cloud, patch.dict(os.environ, cloud.environment(), clear=True):
            return [*rows, *_looks(cloud), *_follow(cloud)]


def _import() -> Row:
    """The time beyond the start of Python itself: every name of the package loads on first use."""
    pairs = [
        (_seconds([sys.executable, "-c", "import muster"]), _seconds([sys.executable, "-c", "pass"]))
        for _ in range(_REPETITIONS)
    ]
    beyond = median(ours - bare for ours, bare in pairs) * 1000
    bare = median(bare for _, bare in pairs) * 1000
    return Row("import muster, beyond a bare Python", beyond, "ms", "<= 20", note=f"a bare Python takes {bare:.0f} ms")


def _help() -> list[Row]:
    pairs = [
        (
            _seconds([sys.executable, "-m", "muster.client.cli.program", "--help"]),
            _seconds([sys.executable, "-c", "import boto3"]),
        )
        for _ in range(_REPETITIONS)
    ]
    ratio = median(ours / peer for ours, peer in pairs)
    ours, peer = (median(column) for column in zip(*pairs, strict=True))
    note = f"median of {_REPETITIONS} pairs, one after the other"
    return [
        Row("muster --help: ratio to import boto3", ratio, "x", "<= 1.5", note=note),
        Row("muster --help", ours, "s", peer=peer, note="wall time of the process"),
    ]


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"NO_COLOR": "1"}, check=True, timeout=60)
    return time.perf_counter() - started


def _looks(cloud: LocalCloud) -> list[Row]:
    """What a look takes after the stack is found: the first one, one without a change, one after three."""
    stack = waiting_stack(cloud)
    rows = []
    for replicas in _SIZES:
        run = WrittenRun(cloud, stack, f"looks-{replicas}", replicas)
        muster = Muster(stack, boto3.Session())
        assert muster.bucket
        named = muster.run(run.name)
        first = run.calls(partial(_all_train, named))
        idle = run.calls(named.status)
        for shard in range(_CHANGES):
            run.change(shard)
        changed = run.calls(named.status)
        rows += [
            Row(f"first look at {replicas:,} replicas", first.total(), "calls", note="one GET for each shard"),
            Row(f"look at {replicas:,} replicas, nothing changed", idle.total(), "calls", "<= 3"),
            Row(
                f"look at {replicas:,} replicas, {_CHANGES} shards changed",
                changed.total(),
                "calls",
                f"<= {3 + _CHANGES}",
            ),
        ]
        assert first["sagemaker"] == idle["sagemaker"] == changed["sagemaker"] == 0
    watched = watch(WrittenRun(cloud, stack, "watched", _REPLICAS), _WATCH_SECONDS)
    note = f"status --watch, a page with a browser, TorchX's polling; a change in each of {_WATCH_SECONDS:.0f} s"
    rate = watched["sagemaker"] / _WATCH_SECONDS
    return [*rows, Row(f"three watchers of {_REPLICAS:,} replicas: SageMaker", rate, "calls/s", "< 1", note=note)]


def _all_train(run: Run) -> None:
    assert all(replica.secondary == "Training" for replica in run.status().replicas)


def waiting_stack(cloud: LocalCloud) -> str:
    """A stack with a client's outputs and runs that only wait; its name."""
    name = "Bench"
    cloud.client("s3").create_bucket(Bucket=name.lower())
    machine = cloud.client("stepfunctions").create_state_machine(
        name=name, definition=json.dumps(_MACHINE), roleArn=_role(cloud, "states")
    )
    outputs = {"StateMachineArn": machine["stateMachineArn"], "BucketName": name.lower(), "JobPrefix": "muster"}
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {key: {"Value": value} for key, value in outputs.items()},
    }
    cloudformation = cloud.client("cloudformation")
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 0.1})
    return name


def _role(cloud: LocalCloud, service: str) -> str:
    principal = {"Service": f"{service}.amazonaws.com"}
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    made = cloud.client("iam").create_role(RoleName=f"bench-{service}", AssumeRolePolicyDocument=document)
    return str(made["Role"]["Arn"])


def _follow(cloud: LocalCloud) -> list[Row]:
    written = threading.Event()
    logs = cloud.client("logs")
    _create_streams(logs)
    seen: dict[str, int] = {}
    delays: list[float] = []
    disorder, last = 0, 0.0
    with _writing(cloud, written):
        query = LogQuery("muster", "followed")
        for line in LogReader(Cloud("Bench", boto3.Session()), query).follow_lines(written.is_set):
            seen[line.message] = seen.get(line.message, 0) + 1
            delays.append(time.time() - line.at.timestamp())
            disorder += line.at.timestamp() < last
            last = max(last, line.at.timestamp())
    lost = _LINES - len(seen)
    repeated = sum(count - 1 for count in seen.values())
    p95 = quantiles(delays, n=20)[-1] / POLL_SECONDS
    where = f"{_RANKS} ranks, {_LINES:,} lines in {_WRITE_SECONDS:.0f} s"
    return [
        Row("logs -f: lines lost", lost, "lines", "== 0", note=where),
        Row("logs -f: lines repeated", repeated, "lines", "== 0", note=where),
        Row("logs -f: delay p95", p95, "polls", "<= 2", note="from the line's time to its printing; a poll is 1 s"),
        Row("logs -f: lines behind a newer one", disorder, "lines", note="a late line is shown late, not left out"),
    ]


def _stream(rank: int) -> str:
    return f"{JobName('muster', 'followed', rank, 1)}/algo-1-1"


def _create_streams(logs: Any) -> None:
    logs.create_log_group(logGroupName=TRAINING_LOG_GROUP)
    for rank in range(_RANKS):
        logs.create_log_stream(logGroupName=TRAINING_LOG_GROUP, logStreamName=_stream(rank))


@contextmanager
def _writing(cloud: LocalCloud, written: threading.Event) -> Iterator[None]:
    """Every rank writes a batch in turn, as SageMaker's agent does; `written` is set after the last one."""
    batches = 20 * _RANKS
    sizes = [_LINES // batches + (batch < _LINES % batches) for batch in range(batches)]

    def write() -> None:
        logs, started, number = cloud.client("logs"), time.monotonic(), 0
        for batch, size in enumerate(sizes):
            time.sleep(max(0.0, started + batch * _WRITE_SECONDS / batches - time.monotonic()))
            now = int(time.time() * 1000)
            events = [{"timestamp": now, "message": f"line {number + index}"} for index in range(size)]
            logs.put_log_events(
                logGroupName=TRAINING_LOG_GROUP, logStreamName=_stream(batch % _RANKS), logEvents=events
            )
            number += size
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()
