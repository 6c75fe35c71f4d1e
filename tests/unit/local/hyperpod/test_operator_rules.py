"""The operator's conditions, and what follows a fault of a job by its restart policy."""

from typing import Any

from muster.options.hyperpod.local.operator import status_writer
from muster.options.hyperpod.local.operator.faults_of_pods import Fault
from muster.options.hyperpod.local.operator.restarts import Remedy, RestartCounts, RestartPolicy, judge, to_avoid


def types(status: dict[str, Any]) -> list[str]:
    return [item["type"] for item in status["conditions"]]


def test_a_condition_that_becomes_true_moves_to_the_end() -> None:
    status: dict[str, Any] = {}
    status_writer.running(status, "1", "")
    assert types(status) == ["PodsRunning", "Running"]
    status_writer.restarting(status, "2", Fault("PodFailed", "why"), 1)
    assert types(status) == ["PodsRunning", "Running", "Restarting"]
    status_writer.running(status, "3", "")
    assert types(status) == ["PodsRunning", "Running"]
    # The time is that of the last transition.
    status_writer.running(status, "5", "remediated")
    [pods, running] = status["conditions"]
    assert (pods["lastTransitionTime"], running["lastTransitionTime"], running["message"]) == ("1", "3", "remediated")
    status_writer.completed(status, "6")
    assert types(status) == ["PodsRunning", "Running", "Completed"]


def remedies(policy: RestartPolicy, faults: int, every_seconds: float = 1.0) -> list[Remedy]:
    counts, found = RestartCounts(), []
    for number in range(faults):
        verdict = judge(policy, counts, number * every_seconds)
        counts = verdict.counts
        found.append(verdict.remedy)
    return found


def test_the_job_fails_after_its_retries() -> None:
    assert remedies(RestartPolicy(), 50) == [Remedy.PROCESSES] * 50
    policy = RestartPolicy(max_retries=2)
    assert remedies(policy, 3) == [Remedy.PROCESSES, Remedy.PROCESSES, Remedy.FAIL]
    verdict = judge(policy, RestartCounts(total=2), 0)
    assert verdict.limit == "jobMaxRetryCount 2"
    assert remedies(RestartPolicy(max_retries=0), 1) == [Remedy.FAIL]


def test_after_some_restarts_of_processes_the_whole_job_starts_again() -> None:
    policy = RestartPolicy(period_seconds=100, before_full=2, max_full=1)
    twice = [Remedy.PROCESSES] * 2
    assert remedies(policy, 6) == [*twice, Remedy.JOB, *twice, Remedy.FAIL]


def test_a_new_period_begins_with_no_restarts() -> None:
    policy = RestartPolicy(period_seconds=10, before_full=1, max_full=0)
    assert remedies(policy, 4, every_seconds=10) == [Remedy.PROCESSES] * 4
    assert remedies(policy, 2, every_seconds=1) == [Remedy.PROCESSES, Remedy.FAIL]


def test_instances_of_several_faults_are_avoided_the_worst_first() -> None:
    offenders = ["i-1", "i-2", "i-2", "i-3", "i-3", "i-3"]
    assert to_avoid(RestartPolicy(avoid=5), offenders) == ["i-3", "i-2"]
    assert to_avoid(RestartPolicy(avoid=1), offenders) == ["i-3"]
    assert to_avoid(RestartPolicy(), offenders) == []
