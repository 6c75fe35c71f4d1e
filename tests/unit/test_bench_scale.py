"""The benchmark of large runs, with fewer replicas: what it measures stays within the same limits per replica."""

from __future__ import annotations

from bench import scale

REPLICAS = 600


def test_a_settlement_stays_within_its_share_of_time_and_memory() -> None:
    settled = scale.settle_all(REPLICAS)
    share = REPLICAS / scale.REPLICAS
    assert settled.result_seconds < settled.seconds
    assert settled.result_seconds <= share * scale.SETTLE_SECONDS
    # What does not depend on the number of replicas is let out: the modules of the page, for instance.
    assert settled.memory_mib <= 20 + share * scale.MEMORY_MIB


def test_the_last_job_is_asked_to_stop_soon_after_the_rate_of_the_api_allows_it() -> None:
    stopped = scale.stop_all(REPLICAS)
    assert stopped.calls == 1
    assert REPLICAS / scale.JOB_RATE - 1 <= stopped.last_seconds <= 1.2 * REPLICAS / scale.JOB_RATE


def test_the_last_orphan_is_asked_to_stop_soon_after_the_rate_of_the_api_allows_it() -> None:
    swept = scale.sweep_all(REPLICAS)
    assert swept.calls == 1
    assert REPLICAS / scale.JOB_RATE - 1 <= swept.last_seconds <= 1.25 * REPLICAS / scale.JOB_RATE


def test_a_second_call_of_stop_loses_no_time_with_what_the_first_has_stopped() -> None:
    """As with 10,000 replicas, the first call has time for most of the jobs."""
    stopped = scale.stop_all(REPLICAS, function_seconds=50)
    assert stopped.calls == 2
    assert stopped.last_seconds <= 1.2 * REPLICAS / scale.JOB_RATE
