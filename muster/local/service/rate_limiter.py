"""The token buckets of an account's calls, and what a service says when one is empty."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from muster.local.call_rates import DEFAULT_RATES, S3_READS, S3_WRITES, CallRate
from muster.local.counted_calls import Call


class TokenBucket:
    """Tokens that come back at a rate, up to a number."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take a token; False when there is none."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimiter:
    """The rates of one account. Thread-safe."""

    def __init__(self, *, enforced: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._enforced = enforced
        self._clock = clock
        self._lock = threading.Lock()
        self._rates: dict[Call, CallRate] = {}
        self._buckets: dict[Call, TokenBucket] = {}
        self.reset()

    def allows(self, call: Call) -> bool:
        """Take a token for a call; False when the account has made too many of them."""
        with self._lock:
            if call.service == "s3" and call not in self._rates:
                is_read = call.operation.startswith(("Get", "Head", "List"))
                call = Call(call.service, S3_READS if is_read else S3_WRITES)
            rate = self._rates.get(call) or self._rates.get(Call(call.service, "*"))
            if not self._enforced or rate is None:
                return True
            if call not in self._buckets:
                self._buckets[call] = TokenBucket(rate.per_second, rate.burst, self._clock)
            return self._buckets[call].take()

    def set(self, rates: Iterable[CallRate]) -> None:
        """Set the rates of some calls, also where rates were not enforced; their buckets are full."""
        with self._lock:
            for rate in rates:
                self._rates[Call(rate.service, rate.operation)] = rate
            self._buckets.clear()
            self._enforced = True

    def reset(self) -> None:
        """Return to the default rates, with full buckets."""
        with self._lock:
            self._rates = {Call(rate.service, rate.operation): rate for rate in DEFAULT_RATES}
            self._buckets.clear()

    def report(self) -> list[CallRate]:
        """The rates that hold."""
        with self._lock:
            return sorted(self._rates.values(), key=lambda rate: (rate.service, rate.operation))
