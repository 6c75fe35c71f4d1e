"""How long a launch takes against a rate-limited API, without a coordinator.

The slots come from the definition's own expression, the retries of the workflow from its Retry block, those of the
client from the AWS SDK's own back-off. Two things are assumed: the API is a token bucket that holds one second's calls,
and a function takes up to a second before it calls.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.retries.standard import ExponentialBackoff, RetryContext
from jsonata import Jsonata

from bench.launches.definition import replica_machine
from muster.control.aws.clients import TRIES
from muster.local.service.rate_limiter import TokenBucket

_START = "2026-01-01T00:00:00.000Z"
_FUNCTION_SECONDS = 1.0
_THROTTLE = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}


@dataclass(frozen=True)
class Launched:
    """What a simulated launch took."""

    seconds: float
    """From the start to the last CreateTrainingJob that was accepted."""
    throttled: int
    """Calls that were throttled and retried."""


def slots(replicas: int, per_second: int) -> list[float]:
    """When each rank is launched, in seconds after the start, by the definition's expression."""
    state = replica_machine(21_600)["States"]["Wait for the launch slot"]
    expression = Jsonata(state["Timestamp"].removeprefix("{% ").removesuffix(" %}"))
    start = datetime.fromisoformat(_START)
    found, frame = [], Jsonata("null").create_frame()
    for rank in range(replicas):
        frame.bind("states", {"input": {"launch": {"from": _START, "per_second": per_second}, "rank": rank}})
        found.append((datetime.fromisoformat(expression.evaluate(None, frame)) - start).total_seconds())
    return found


def launch(runs: list[list[float]], limit_per_second: int, seed: int = 1) -> Launched:
    """Launch runs at once, each with its ranks' slots, against one account's limit."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    now = 0.0
    bucket = TokenBucket(limit_per_second, limit_per_second, clock=lambda: now)
    backoff, retry = ExponentialBackoff(random=dice.random), _retry_of_workflow()
    # (when, tie-break, tries of the client in this call, retries of the workflow)
    calls = [
        (at + dice.uniform(0, _FUNCTION_SECONDS), index, 1, 0)
        for index, at in enumerate(at for run in runs for at in run)
    ]
    heapq.heapify(calls)
    last, throttled = 0.0, 0
    while calls:
        now, index, tries, retries = heapq.heappop(calls)
        if bucket.take():
            last = now
            continue
        throttled += 1
        if tries < TRIES:
            wait = backoff.delay_amount(RetryContext(attempt_number=tries, parsed_response=_THROTTLE))
            heapq.heappush(calls, (now + wait, index, tries + 1, retries))
        else:
            longest = min(retry["MaxDelaySeconds"], retry["IntervalSeconds"] * retry["BackoffRate"] ** retries)
            heapq.heappush(calls, (now + dice.uniform(0, longest), index, 1, retries + 1))
    return Launched(last, throttled)


def _retry_of_workflow() -> dict[str, Any]:
    """The definition's retry policy for errors that the function reports as unavailable."""
    blocks = replica_machine(21_600)["States"]["Launch the job and wait for its end"]["Retry"]
    retry: dict[str, Any] = next(block for block in blocks if "Muster.Unavailable" in block["ErrorEquals"])
    assert retry["JitterStrategy"] == "FULL"
    return retry
