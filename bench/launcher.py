"""The duration of a launch and the cost of a run's control plane: measured on the embedded cloud, simulated, computed.

There is no peer: the executors that Muster replaces launch one job after the other from a process that polls.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

from bench.deployed_stack import Stack, open_stack
from bench.launches.bill import Counts, bill_rows
from bench.launches.pacing import Launched, launch, slots
from bench.launches.shard_writes import end_storm, launch_storm
from bench.launches.steps import life, step_through
from bench.s3_requests import requests
from bench.table import Row
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import REPLICAS_MAX, JobName
from muster.contract.run.execution_input import execution_input
from muster.contract.spec.retry_budget import HISTORY_MAX
from muster.contract.spec.spec_reader import parse_spec
from muster.infra.settings.stack_settings import RunsTable

_DAY = 86_400
_PER_SECOND = RunsTable().launches_per_second
_REARM = RunsTable().rearm_seconds
_NOOP = {"entrypoint": ["python", "-c", "pass"]}
_LAUNCHED = 64
_BILLED = 1_000
_KWARGS_BYTES = 200 * 1_024
_PAYLOAD_MAX = 262_144  # Step Functions: input and output of a state


def run() -> list[Row]:
    """Every figure of a launch and of its control plane."""
    with open_stack() as stack:
        stack.train("warm-up", {**_NOOP, "replicas": 4})
        measured = _measured_launch(stack)
        payloads = _payload_rows(stack)
    return [
        measured,
        *_simulated_launches(),
        *_shard_rows(),
        *_step_rows(),
        *bill_rows(_counts(0), _counts(1)),
        *payloads,
    ]


def _ratio(what: str, seconds: float, replicas: int, note: str) -> Row:
    alone = replicas / _PER_SECOND
    return Row(f"{what}, against the API's limit alone", seconds / alone, "ratio", "<= 1.15", note=note)


def _measured_launch(stack: Stack) -> Row:
    name = "launch"
    stack.train(name, {**_NOOP, "replicas": _LAUNCHED})
    machine = stack.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
    started = stack.cloud.client("stepfunctions").describe_execution(executionArn=f"{machine}:{name}")["startDate"]
    sagemaker = stack.cloud.client("sagemaker")
    created = [
        sagemaker.describe_training_job(TrainingJobName=str(JobName(stack.outputs["JobPrefix"], name, rank, 1)))[
            "CreationTime"
        ]
        for rank in range(_LAUNCHED)
    ]
    seconds = (max(created) - started).total_seconds()
    note = f"{seconds:.1f} s on the embedded cloud from StartExecution, at {_PER_SECOND}/s; 8 functions at once there"
    return _ratio(f"launch of {_LAUNCHED} replicas", seconds, _LAUNCHED, note)


def _simulated_launches() -> list[Row]:
    rows = []
    for replicas in (1_000, REPLICAS_MAX):
        worst = max((launch([slots(replicas, _PER_SECOND)], _PER_SECOND, seed) for seed in range(5)), key=_seconds_of)
        note = f"simulated, worst of 5: {worst.seconds:,.0f} s, {worst.throttled} calls throttled"
        rows.append(_ratio(f"launch of {replicas:,} replicas", worst.seconds, replicas, note))
    two = launch([slots(1_000, _PER_SECOND) for _ in range(2)], _PER_SECOND)
    storm = launch([[0.0] * 1_000], _PER_SECOND)
    alone = 1_000 / _PER_SECOND
    return [
        *rows,
        Row(
            "two launches of 1,000 at once, against the limit alone",
            two.seconds / (2 * alone),
            "ratio",
            note=f"simulated: each at the full pace, {two.throttled:,} calls throttled and none counted as an attempt",
        ),
        Row(
            "1,000 calls at the same time (no slots), against the limit alone",
            storm.seconds / alone,
            "ratio",
            note=f"simulated: {storm.throttled:,} calls throttled",
        ),
    ]


def _seconds_of(launched: Launched) -> float:
    return launched.seconds


def _step_rows() -> list[Row]:
    spec = parse_spec({**_NOOP, "replicas": 1})
    failures = [FailureClass.CAPACITY] * 20
    longest = step_through(life(spec, failures, 28 * _DAY / (len(failures) + 1), _REARM), _REARM)
    note = "the definition stepped with the real decisions: 20 capacity ends with their full waits, re-armed every 6 h"
    return [
        Row("history of a replica's workflow, 28 days with 20 reruns", longest.events, "events", "< 25000", note=note),
        Row("share of the history that Step Functions allows", longest.events / HISTORY_MAX, "ratio"),
    ]


def _shard_rows() -> list[Row]:
    """Writes of the roll-up that meet another one of the same shard."""
    note = "simulated: a launch at the stack's pace, and each job is training within three minutes"
    storms = [(replicas, launch_storm(replicas, _PER_SECOND)) for replicas in (32, 1_000, 10_000)]
    rows = [
        Row(f"roll-up in a launch of {replicas:,}: tries beyond the first", storm.retried, "per write", note=note)
        for replicas, storm in storms
    ]
    ends = end_storm(1_000, 10)
    note = f"simulated; at most {ends.most_tries} tries of a write"
    return [
        *rows,
        Row(
            "roll-up when 1,000 jobs end within 10 s: tries beyond the first",
            ends.retried,
            "per write",
            "<= 1",
            note=note,
        ),
    ]


def _counts(reruns: int) -> Counts:
    """Requests per replica of a run in which each has so many reruns, by what they are billed as."""
    calls = requests(_BILLED, reruns)
    puts = calls["PutObject"] + calls["ListObjectsV2"]
    gets = calls["GetObject"] + calls["HeadObject"]
    return Counts(puts / _BILLED, gets / _BILLED, calls["PutEvents"] / _BILLED)


def _payload_rows(stack: Stack) -> list[Row]:
    """The largest run that there can be, planned by the deployed function; nothing of it is launched."""
    spec = {
        "replicas": REPLICAS_MAX,
        "trainer": "package.module:train",
        "kwargs": {"text": "x" * (_KWARGS_BYTES - len('{"text":""}'))},
    }
    document = execution_input(parse_spec(spec))
    event = {
        "execution_name": "largest",
        "execution_arn": stack.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:") + ":largest",
        "started_at": "2026-01-01T00:00:00.000Z",
        "input": json.loads(document),
    }
    functions = stack.cloud.client("lambda")
    names = chain.from_iterable(page["Functions"] for page in functions.get_paginator("list_functions").paginate())
    plan = next(function["FunctionName"] for function in names if "-Plan" in function["FunctionName"])
    answer = functions.invoke(FunctionName=plan, Payload=json.dumps(event).encode())["Payload"].read()
    planned: dict[str, Any] = json.loads(answer)
    assert planned["accepted"]
    assert len(planned["ranks"]) == REPLICAS_MAX
    sizes = {
        "the execution's input": len(document),
        "plan's event": len(json.dumps(event).encode()),
        "plan's answer, which is the Map's input": len(answer),
    }
    largest = max(sizes, key=lambda name: sizes[name])
    note = f"{REPLICAS_MAX:,} replicas and 200 KiB of kwargs; " + ", ".join(f"{k} {v:,}" for k, v in sizes.items())
    return [Row(f"largest payload ({largest})", sizes[largest], "bytes", f"<= {_PAYLOAD_MAX}", note=note)]
