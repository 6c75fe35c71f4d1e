from __future__ import annotations

from muster.contract.run.run_queue import Queue, QueuedRun


def queued(run: str, replicas: int) -> QueuedRun:
    return QueuedRun(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="2026-01-01T00:00:00.000Z")


def queue(*runs: tuple[str, int], cap: int = 10) -> Queue:
    after = Queue()
    for run, replicas in runs:
        after = after.asked(queued(run, replicas), cap)
    return after


def admitted(queue_: Queue) -> list[str]:
    return [entry.run for entry in queue_.runs if entry.admitted]


def test_runs_are_admitted_while_they_fit_and_asking_twice_is_asking_once():
    runs = queue(("a", 4), ("b", 6), ("c", 1))
    assert admitted(runs) == ["a", "b"]
    assert runs.asked(queued("c", 1), 10) == runs.asked(queued("a", 4), 10) == runs
    assert runs.before("c") == ("a", "b")
    assert runs.before("a") is runs.before("unknown") is None


def test_a_large_run_is_not_overtaken_by_small_ones():
    runs = queue(("a", 4), ("large", 9), ("small", 1))
    assert admitted(runs) == ["a"]
    after = runs.without({"arn:a"}, 10)
    assert admitted(after) == ["large", "small"]
    assert after.before("large") is None


def test_a_run_that_leaves_the_queue_lets_the_next_one_in():
    runs = queue(("a", 4), ("large", 9), ("small", 1)).without({"arn:large"}, 10)
    assert admitted(runs) == ["a", "small"]


def test_a_cap_that_was_lowered_lets_a_larger_run_start_alone():
    runs = queue(("a", 4), ("b", 9)).without({"arn:a"}, 5)
    assert admitted(runs) == ["b"]


def test_the_queue_survives_its_own_json():
    runs = queue(("a", 4), ("b", 9))
    assert Queue.from_json(runs.to_json(), "queue") == runs
