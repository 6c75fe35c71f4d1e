"""The run of a verification: its spec, and what it costs and takes at most."""

from __future__ import annotations

import math
from pathlib import Path

from muster.client.launch.dry_run import DryRun
from muster.client.verify.verification import Promise
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

TRAINER_FOLDER = Path(__file__).parent / "delivered"
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
MINUTES = 10
MINUTES_AT_MOST = 40
DEADLINE_SECONDS = 3_600
"""The stack stops the run then, should the client be gone."""
REQUESTS_USD = 0.005
"""Requests of S3, Lambda, Step Functions and logs: a few hundred, well under this."""

# Only what is free may be repeated beside the one failure on purpose, so that the price has a bound.
_BUDGETS = {
    FailureClass.USER_CODE: 1,
    FailureClass.CAPACITY: 3,
    FailureClass.THROTTLE: 10,
}


def own_spec(name: str, instance_type: str, image: str | None) -> Spec:
    """Two replicas that train for seconds; one of them fails once, on purpose.

    Raises:
        SpecError: the instance type or the image cannot be used.
    """
    reruns = {
        failure_class.value: {"max_reruns": _BUDGETS.get(failure_class, 0), "delay_seconds": _delay(failure_class)}
        for failure_class in DEFAULT_BUDGETS
    }
    spec: dict[str, object] = {
        "name": name,
        "replicas": REPLICAS,
        "trainer": "muster_verify:train",
        "source_dir": str(TRAINER_FOLDER),
        "instance_type": instance_type,
        "max_runtime_seconds": MAX_RUNTIME_SECONDS,
        "deadline_seconds": DEADLINE_SECONDS,
        "rendezvous": {"timeout_seconds": float(MAX_RUNTIME_SECONDS)},
        "reruns": reruns,
        "kwargs": {
            "rounds": ROUNDS,
            "failing_rank": FAILING_RANK,
            "fails_after": FAILS_AFTER,
            "kept": KEPT_FILE,
            "deleted": DELETED_FILE,
            "mark": REPORT_MARK,
        },
    }
    return parse_spec({**spec, "image": image} if image is not None else spec)


def promise(dry: DryRun) -> Promise:
    """What the run costs and takes, at most: every attempt to its time limit and its forced end, and the requests."""
    prices, jobs = dry.cost.prices, REPLICAS * (1 + _BUDGETS[FailureClass.USER_CODE])
    minutes = MAX_RUNTIME_SECONDS // 60
    if dry.cost.ceiling is None:
        unpriced = ", ".join(dry.cost.unpriced)
        made_of = f"{jobs} training jobs of at most {minutes} minutes each; {unpriced} has no price in {prices.source}"
        return Promise(usd=None, made_of=made_of, minutes=MINUTES, minutes_at_most=MINUTES_AT_MOST)
    [(name, hourly)] = prices.usd_per_hour.items()
    after = _AFTER_LIMIT_SECONDS // 60
    made_of = (
        f"{jobs} training jobs of at most {minutes} minutes each, and {after} minutes to stop and upload, on {name} at "
        f"${hourly:g} an hour ({prices.source}, {prices.region}, {prices.as_of}), and ${REQUESTS_USD:g} for requests"
    )
    usd = dry.cost.ceiling + jobs * _AFTER_LIMIT_SECONDS / 3_600 * hourly + REQUESTS_USD
    return Promise(usd=usd, made_of=made_of, minutes=MINUTES, minutes_at_most=MINUTES_AT_MOST)


def promise_line(found: Promise) -> str:
    """Price and time, for people."""
    price = "The price is not known" if found.usd is None else f"The run costs at most ${_rounded_up(found.usd):.3f}"
    return (
        f"{price}: {found.made_of}. It takes about {found.minutes} minutes, and is cancelled after "
        f"{found.minutes_at_most}."
    )


def _rounded_up(usd: float) -> float:
    """Dollars rounded up to tenths of a cent."""
    return math.ceil(round(usd * 1_000, 6)) / 1_000


def _delay(failure_class: FailureClass) -> int:
    # The failure on purpose is rerun at once; what waits for AWS waits as any run does.
    return 0 if failure_class is FailureClass.USER_CODE else min(60, DEFAULT_BUDGETS[failure_class].delay_seconds)
