"""The run of a verification: its spec, and what it costs and takes at most."""

from __future__ import annotations

import math
from pathlib import Path

from muster.client.launch.dry_run import DryRun
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.options.verify.client.check_outcomes import Promise

INSTANCE_TYPE = "ml.m5.large"
"""The cheapest type of the shipped price table; every region with SageMaker has it."""
REPLICAS = 2
# A job starts in two to four minutes, and rank 0 waits for the rerun of rank 1: two starts and a minute of training.
MAX_RUNTIME_SECONDS = 540
# SageMaker bills beyond the time limit: it gives a container 120 s after SIGTERM, then uploads what is there, a few kB.
_AFTER_LIMIT_SECONDS = 180
ROUNDS, FAILS_AFTER, FAILING_RANK = 4, 2, 1
KEPT_FILE, DELETED_FILE = "verify-kept.txt", "verify-deleted.txt"
REPORT_MARK = "muster-verify: "
"""Begins the line in which an attempt says what it found in its container."""
MINUTES, MINUTES_AT_MOST = 10, 40
_DEADLINE_SECONDS = 3_600  # the stack stops the run then, should the client be gone
_REQUESTS_USD = 0.005  # of S3, Lambda, Step Functions and logs: a few hundred, well under this
# Only what is free may be repeated beside the one failure on purpose, so that the price has a bound.
_BUDGETS = {FailureClass.USER_CODE: 1, FailureClass.CAPACITY: 3, FailureClass.THROTTLE: 10}


def own_spec(name: str, instance_type: str, image: str | None) -> Spec:
    """Two replicas that train for seconds; one of them fails once, on purpose.

    Raises:
        SpecError: the instance type or the image cannot be used.
    """
    reruns = {
        failure.value: {"max_reruns": _BUDGETS.get(failure, 0), "delay_seconds": min(60, budget.delay_seconds)}
        for failure, budget in DEFAULT_BUDGETS.items()
    }
    reruns[FailureClass.USER_CODE.value]["delay_seconds"] = 0  # the failure on purpose
    kwargs = {"rounds": ROUNDS, "failing_rank": FAILING_RANK, "fails_after": FAILS_AFTER}
    spec: dict[str, object] = {
        "name": name,
        "replicas": REPLICAS,
        "trainer": "muster_verify:train",
        "source_dir": str(Path(__file__).parent / "delivered"),
        "instance_type": instance_type,
        "max_runtime_seconds": MAX_RUNTIME_SECONDS,
        "deadline_seconds": _DEADLINE_SECONDS,
        "rendezvous": {"timeout_seconds": float(MAX_RUNTIME_SECONDS)},
        "reruns": reruns,
        "kwargs": {**kwargs, "kept": KEPT_FILE, "deleted": DELETED_FILE, "mark": REPORT_MARK},
    }
    return parse_spec({**spec, "image": image} if image is not None else spec)


def promise(dry: DryRun) -> Promise:
    """What the run costs and takes, at most: every attempt to its time limit and its forced end, and the requests."""
    prices, jobs = dry.cost.prices, REPLICAS * (1 + _BUDGETS[FailureClass.USER_CODE])
    made_of, usd = f"{jobs} training jobs of at most {MAX_RUNTIME_SECONDS // 60} minutes each", None
    if dry.cost.ceiling is None:
        made_of += f"; {', '.join(dry.cost.unpriced)} has no price in {prices.source}"
    else:
        [(name, hourly)] = prices.usd_per_hour.items()
        made_of += (
            f", and {_AFTER_LIMIT_SECONDS // 60} minutes to stop and upload, on {name} at ${hourly:g} an hour "
            f"({prices.source}, {prices.region}, {prices.as_of}), and ${_REQUESTS_USD:g} for requests"
        )
        usd = dry.cost.ceiling + jobs * _AFTER_LIMIT_SECONDS / 3_600 * hourly + _REQUESTS_USD
    return Promise(usd=usd, made_of=made_of, minutes=MINUTES, minutes_at_most=MINUTES_AT_MOST)


def promise_line(found: Promise) -> str:
    """Price, rounded up to tenths of a cent, and time, for people."""
    usd = "" if found.usd is None else f"{math.ceil(round(found.usd * 1_000, 6)) / 1_000:.3f}"
    price = f"The run costs at most ${usd}" if usd else "The price is not known"
    took = f"It takes about {found.minutes} minutes, and is cancelled after {found.minutes_at_most}."
    return f"{price}: {found.made_of}. {took}"
