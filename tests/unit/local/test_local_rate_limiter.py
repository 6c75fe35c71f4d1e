"""The rates of calls, on a clock that the test moves."""

from __future__ import annotations

import pytest

from muster.local.call_rates import DEFAULT_RATES, CallRate
from muster.local.calls import Call
from muster.local.faults import throttled
from muster.local.service.rate_limiter import RateLimiter

LIST = Call("sagemaker", "ListTrainingJobs")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def allowed(limiter: RateLimiter, call: Call, tries: int) -> int:
    return sum(limiter.allows(call) for _ in range(tries))


def test_a_burst_passes_and_then_the_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(enforced=True, clock=clock)
    assert allowed(limiter, LIST, 100) == 4
    clock.now += 1.5
    assert allowed(limiter, LIST, 100) == 3
    # Another operation has a bucket of its own.
    assert allowed(limiter, Call("sagemaker", "DescribeTrainingJob"), 100) == 20
    assert allowed(limiter, Call("sagemaker", "StopTrainingJob"), 100) == 20


def test_a_service_without_a_rate_is_not_limited() -> None:
    assert allowed(RateLimiter(enforced=True), Call("s3", "PutObject"), 100_000) == 100_000


def test_rates_can_be_set_and_reset() -> None:
    limiter = RateLimiter(enforced=False, clock=Clock())
    assert allowed(limiter, LIST, 100) == 100
    limiter.set([CallRate(service="sagemaker", operation="ListTrainingJobs", per_second=1, burst=1)])
    assert allowed(limiter, LIST, 100) == 1
    limiter.reset()
    assert allowed(limiter, LIST, 100) == 4
    assert len(limiter.report()) == len(DEFAULT_RATES)


@pytest.mark.parametrize(
    ("service", "code", "status"),
    [
        ("sagemaker", "ThrottlingException", 400),
        ("states", "ThrottlingException", 400),
        ("scheduler", "ThrottlingException", 429),
        ("lambda", "TooManyRequestsException", 429),
        ("sns", "Throttled", 429),
        ("cloudformation", "Throttling", 400),
        ("s3", "SlowDown", 503),
    ],
)
def test_every_service_has_its_own_answer(service: str, code: str, status: int) -> None:
    refused = throttled(service, "*")
    assert (refused.code, refused.status) == (code, status)
