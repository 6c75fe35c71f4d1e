"""The operator's conditions, and what follows a fault of a job by its restart policy."""

from muster.options.hyperpod.local.operator.conditions import with_condition, without
from muster.options.hyperpod.local.operator.restarts import Remedy, RestartCounts, RestartPolicy, judge, to_avoid


def types(conditions: list[dict[str, str]]) -> list[str]:
    return [item["type"] for item in conditions]


def test_a_condition_that_becomes_true_moves_to_the_end() -> None:
    found = with_condition(None, "Running", "True", "1")
    found = with_condition(found, "Restarting", "True", "2")
    found = with_condition(found, "Running", "False", "3")
    assert types(found) == ["Running", "Restarting"]
    found = with_condition(without(found, "Restarting"), "Running", "True", "4", reason="Running")
    assert types(found) == ["Running"]
    # The time is that of the last transition.
    again = with_condition(found, "Running", "True", "5", reason="Running", message="remediated")
    assert (again[0]["lastTransitionTime"], again[0]["message"]) == ("4", "remediated")
    assert with_condition(again, "Running", "True", "9", reason="Running", message="remediated") == again


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
