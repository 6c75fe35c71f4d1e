"""The rates of calls, on a clock that the test moves."""

from muster.local.call_rates import DEFAULT_RATES, CallRate
from muster.local.counted_calls import Call
from muster.local.service.rate_limiter import RateLimiter

LIST = Call("sagemaker", "ListTrainingJobs")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def allowed(limiter: RateLimiter, call: Call, tries: int) -> int:
    return sum(limiter.allows(call) for _ in range(tries))


def test_a_burst_passes_and_then_the_rate_and_rates_can_be_set_and_reset() -> None:
    clock = Clock()
    limiter = RateLimiter(enforced=True, clock=clock)
    assert allowed(limiter, LIST, 100) == 4
    clock.now += 1.5
    assert allowed(limiter, LIST, 100) == 3
    assert allowed(limiter, Call("iam", "GetRole"), 10_000) == 10_000
    reads = [allowed(limiter, Call("s3", operation), 4_000) for operation in ("GetObject", "HeadObject")]
    assert reads == [4_000, 1_500]
    assert allowed(limiter, Call("s3", "UploadPart"), 4_000) == 3_500
    limiter = RateLimiter(enforced=False, clock=clock)
    assert allowed(limiter, LIST, 100) == 100
    limiter.set([CallRate(service="sagemaker", operation="ListTrainingJobs", per_second=1, burst=1)])
    assert allowed(limiter, LIST, 100) == 1
    limiter.reset()
    assert allowed(limiter, LIST, 100) == 4
    assert len(limiter.report()) == len(DEFAULT_RATES)
