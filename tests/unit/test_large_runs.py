"""Large and long runs, in virtual time: they fit into a function's time, a workflow's history and a shard's writes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from jsonata import Jsonata

from bench import scale
from bench.launches.definition import replica_machine
from bench.launches.shard_writes import end_storm
from bench.launches.steps import life, step_through
from bench.rounds.crowd import crowd
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.spec.retry_budget import HISTORY_MAX, REARM_SECONDS, RERUN_EVENTS_MAX
from muster.contract.spec.spec_reader import parse_spec
from muster.control.aws.store import TRIES
from muster.infra.settings.stack_settings import REARM_SECONDS_MIN, Platform, RunsTable

DAY = 86_400
REPLICAS = 600
AT_THE_RATE = REPLICAS / scale.JOB_RATE
REARM = RunsTable().rearm_seconds
RUN = {"replicas": 1, "trainer": "m:f"}


def test_the_last_job_is_asked_to_stop_soon_after_the_rate_of_the_api_allows_it() -> None:
    stopped, swept = scale.stop_all(REPLICAS), scale.sweep_all(REPLICAS)
    assert (stopped.calls, swept.calls) == (1, 1)
    assert AT_THE_RATE - 1 <= stopped.last_seconds <= 1.2 * AT_THE_RATE
    assert AT_THE_RATE - 1 <= swept.last_seconds <= 1.25 * AT_THE_RATE


def test_replicas_that_s3_slows_down_end_their_round_at_its_rate() -> None:
    """As many replicas for the rate of a partition as 1,024 are for S3's."""
    found, impatient = (crowd(32, 2**25, patience_seconds=seconds, gets=172) for seconds in (3_600, 0))
    assert (found.lost, len(found.means)) == (0, 1)
    assert impatient.lost > 0
    assert found.seconds <= 1.1 * found.bound_seconds
    assert max(found.first_reads.values()) <= 4


def test_a_second_call_of_stop_loses_no_time_with_what_the_first_has_stopped() -> None:
    """As with 10,000 replicas, the first call has time for most of the jobs."""
    stopped = scale.stop_all(REPLICAS, function_seconds=50)
    assert stopped.calls == 2
    assert stopped.last_seconds <= 1.2 * AT_THE_RATE


def test_the_longest_waits_that_a_spec_may_ask_for_fit_into_a_history() -> None:
    budget = {"max_reruns": 7, "delay_seconds": DAY, "max_delay_seconds": DAY}
    spec = parse_spec({**RUN, "reruns": {"capacity": budget}})
    steps = step_through(life(spec, [FailureClass.CAPACITY] * 7, 365 * DAY / 8, REARM), REARM)
    assert 15_000 < steps.events < HISTORY_MAX
    with pytest.raises(SpecError) as refused:
        parse_spec({**RUN, "reruns": {"capacity": {**budget, "max_reruns": 8}}})
    assert [problem.field for problem in refused.value.problems] == ["reruns"]


@pytest.mark.parametrize("period", [REARM_SECONDS, REARM_SECONDS_MIN[Platform.AWS], REARM])
def test_a_year_of_re_arms_fits_into_a_history_beside_all_reruns(period: int) -> None:
    """A replica on a cluster may be rerun for as long as its spec allows: its history is not full before."""
    wait, age, events = waits(period), 0, 0
    while age < 365 * DAY:
        age += wait(age, period)
        events += 6
    assert events < HISTORY_MAX - RERUN_EVENTS_MAX - 600, "what is tried again for hours takes some as well"


def test_a_parked_seat_of_an_old_run_looks_when_its_decision_says() -> None:
    """Its looks are bounded by the attempts that a replica can have."""
    assert [waits(REARM)(age, 1_800) for age in (0, 30 * DAY, 300 * DAY)] == [1_800] * 3


def waits(period: int) -> Callable[[int, int], int]:
    """How many seconds the wait for a token takes in an execution of an age, by its input; `period`: its re-arms'."""
    launch = replica_machine(REARM)["States"]["Launch the job and wait for its end"]
    seconds = Jsonata(launch["TimeoutSeconds"].removeprefix("{% ").removesuffix(" %}"))
    frame, began = seconds.create_frame(), datetime(2026, 1, 1, tzinfo=UTC)

    def wait(age: int, rearm_seconds: int) -> int:
        now = timestamps.text(began + timedelta(seconds=age))
        context = {"State": {"EnteredTime": now}, "Execution": {"StartTime": timestamps.text(began)}}
        frame.bind("states", {"context": context, "input": {"rearm_seconds": rearm_seconds}})
        frame.bind("rearm_seconds", period)
        return int(seconds.evaluate(None, frame))

    return wait


def test_the_roll_up_is_written_even_when_all_jobs_end_at_the_same_time() -> None:
    for replicas, seconds in ((1_000, 2), (10_000, 10)):
        storm = end_storm(replicas, seconds)
        assert storm.writes == replicas
        assert storm.most_tries < TRIES, (replicas, seconds)
