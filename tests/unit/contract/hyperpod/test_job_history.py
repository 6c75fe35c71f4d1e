"""What looks at a job on a cluster add to its attempt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from muster.contract import timestamps
from muster.contract.aws.job_status import JobStatus
from muster.contract.hyperpod.cluster_job import ClusterJob
from muster.contract.hyperpod.job_history import HISTORY_MAX, with_state
from muster.contract.hyperpod.job_state import JobState
from muster.contract.run.attempt import Attempt
from muster.contract.timestamps import Timestamp

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> Timestamp:
    return timestamps.text(START + timedelta(seconds=seconds))


def looked(*states: JobState) -> Attempt:
    attempt = Attempt(attempt=1, job="muster-one-r0-a1", cluster=ClusterJob(cluster="hyper", namespace="team-a"))
    for number, state in enumerate(states):
        attempt = with_state(attempt, state, at(10 * number))
    return attempt


def state(secondary: str, status: JobStatus = JobStatus.IN_PROGRESS, **fields: Any) -> JobState:
    return JobState(status, secondary, **fields)


def steps(attempt: Attempt) -> list[str]:
    return [step.secondary for step in attempt.history]


def test_a_life_with_a_wait_a_preemption_and_an_end() -> None:
    waits, trains = state("WaitingForQuota"), state("Training", instances=1)
    preempted = state("WaitingForQuota", message="Preempted")
    attempt = looked(waits, waits, trains, trains, preempted, trains, state("Completed", JobStatus.COMPLETED))
    assert steps(attempt) == ["WaitingForQuota", "Training", "WaitingForQuota", "Training", "Completed"]
    assert attempt.history[2].message == "Preempted"


def test_a_restart_of_the_operator_is_one_incarnation_however_often_it_is_seen() -> None:
    once = looked(state("Training"), state("Restarting", restarts=1, message="lost"), state("Training", restarts=1))
    assert steps(once) == ["Training", "Restarting", "Training"]
    unseen = looked(state("Training"), state("Training", restarts=2), state("Training", restarts=2))
    assert steps(unseen) == ["Training", "Restarting", "Training"]
    assert "2 times" in unseen.history[1].message
    assert [one.cluster and one.cluster.restarts for one in (once, unseen)] == [1, 2]


def test_elastic_scaling_shows_the_number_of_instances() -> None:
    attempt = looked(state("Training", instances=1), state("Training", instances=2), state("Training", instances=2))
    assert [step.instances for step in attempt.history] == [1, 2]
    assert attempt.history[1].message == "scaled from 1 to 2 instances"
    assert attempt.cluster is not None
    assert attempt.cluster.instances == 2


def test_an_end_without_a_look_before_it_has_its_start() -> None:
    attempt = looked(state("Completed", JobStatus.COMPLETED, started_at=at(-100), changed_at=at(-5), instances=2))
    assert [(step.secondary, step.at) for step in attempt.history] == [("Training", at(-100)), ("Completed", at(-5))]


def test_times_never_go_back_and_the_record_stays_small() -> None:
    training_job = Attempt(attempt=1, job="muster-one-r0-a1")
    assert with_state(training_job, state("Training"), at(0)) is training_job
    many = [state(("Training", "Restarting")[number % 2], changed_at=at(-number)) for number in range(500)]
    attempt = looked(*many)
    assert len(attempt.history) == HISTORY_MAX
    assert all(before.at <= after.at for before, after in pairwise(attempt.history))
