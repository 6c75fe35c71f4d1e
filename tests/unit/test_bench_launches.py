"""The models behind `bench/launcher.py`, and what they say of the real definition."""

from __future__ import annotations

import pytest

from bench.launches.pacing import launch, slots
from bench.launches.shard_writes import end_storm, launch_storm
from bench.launches.steps import life, step_through
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.run.workflow_history import HISTORY_MAX
from muster.contract.spec.spec_reader import parse_spec
from muster.control.aws.store import TRIES
from muster.control.runtime import clock
from muster.infra.settings.stack_settings import REARM_SECONDS_MIN, Platform, RunsTable

DAY = 86_400
REARM = RunsTable().rearm_seconds
RUN = {"replicas": 1, "trainer": "m:f"}


def test_a_replica_that_succeeds_at_once_takes_few_steps():
    steps = step_through(life(parse_spec(RUN), [], 3_600, REARM), REARM)
    # Slot and launch; and the start. The events are those that Step Functions documents.
    assert (steps.transitions, steps.events, steps.tasks) == (3, 2 + 2 + 6, 1)


def test_a_rerun_takes_one_more_step_one_more_to_wait_and_a_long_wait_two_more_for_each_piece(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(clock, "seconds_since", lambda _: 0.0)
    none = {**RUN, "reruns": {"infrastructure": {"max_reruns": 1}}}
    waits = {**RUN, "reruns": {"infrastructure": {"max_reruns": 1, "delay_seconds": 500}}}
    waits_long = {**RUN, "reruns": {"infrastructure": {"max_reruns": 1, "delay_seconds": 1_000}}}
    lost = [FailureClass.INFRASTRUCTURE]
    assert step_through(life(parse_spec(none), lost, 3_600, REARM), REARM).transitions == 4
    assert step_through(life(parse_spec(waits), lost, 3_600, REARM), REARM).transitions == 5
    assert step_through(life(parse_spec(waits_long), lost, 3_600, REARM), REARM).transitions == 7


@pytest.mark.parametrize("rearm_seconds", [REARM, REARM_SECONDS_MIN[Platform.AWS]])
@pytest.mark.parametrize("failure_class", [FailureClass.SPOT, FailureClass.CAPACITY])
def test_28_days_with_20_reruns_fit_into_a_history(rearm_seconds: int, failure_class: FailureClass):
    steps = step_through(life(parse_spec(RUN), [failure_class] * 20, 28 * DAY / 21, rearm_seconds), rearm_seconds)
    assert steps.events < HISTORY_MAX / 4


def test_the_longest_waits_that_a_spec_may_ask_for_fit_too():
    budget = {"max_reruns": 7, "delay_seconds": DAY, "max_delay_seconds": DAY}
    spec = parse_spec({**RUN, "reruns": {"capacity": budget}})
    steps = step_through(life(spec, [FailureClass.CAPACITY] * 7, 365 * DAY / 8, REARM), REARM)
    assert 15_000 < steps.events < HISTORY_MAX
    with pytest.raises(SpecError, match="reruns: these budgets can take up to"):
        parse_spec({**RUN, "reruns": {"capacity": {**budget, "max_reruns": 8}}})


def test_an_api_at_its_limit_delays_a_paced_launch_by_little_and_loses_nobody():
    paced = launch([slots(300, 10)], 10)
    assert 29 < paced.seconds < 1.15 * 30
    assert launch([[0.0] * 300], 10).throttled > 5 * paced.throttled


@pytest.mark.parametrize(("replicas", "seconds"), [(1_000, 10), (1_000, 2), (10_000, 10)])
def test_the_roll_up_is_written_even_when_all_jobs_end_at_the_same_time(replicas: int, seconds: float):
    storm = end_storm(replicas, seconds)
    assert storm.writes == replicas
    assert storm.most_tries < TRIES


def test_in_a_launch_few_writes_of_the_roll_up_meet():
    assert launch_storm(32, 10).retried == 0
    assert launch_storm(1_000, 10).retried < 0.1
