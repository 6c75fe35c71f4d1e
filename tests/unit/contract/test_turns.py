from __future__ import annotations

from muster.contract.turns import Turn, Turns


def turn(run: str, replicas: int) -> Turn:
    return Turn(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="2026-01-01T00:00:00.000Z")


def queue(*runs: tuple[str, int], cap: int = 10) -> Turns:
    turns = Turns()
    for run, replicas in runs:
        turns = turns.asked(turn(run, replicas), cap)
    return turns


def admitted(turns: Turns) -> list[str]:
    return [turn.run for turn in turns.turns if turn.admitted]


def test_runs_are_admitted_while_they_fit_and_asking_twice_is_asking_once():
    turns = queue(("a", 4), ("b", 6), ("c", 1))
    assert admitted(turns) == ["a", "b"]
    assert turns.asked(turn("c", 1), 10) == turns.asked(turn("a", 4), 10) == turns
    assert turns.before("c") == ("a", "b")
    assert turns.before("a") is turns.before("unknown") is None


def test_a_large_run_is_not_overtaken_by_small_ones():
    turns = queue(("a", 4), ("large", 9), ("small", 1))
    assert admitted(turns) == ["a"]
    after = turns.without({"arn:a"}, 10)
    assert admitted(after) == ["large", "small"]
    assert after.before("large") is None


def test_whoever_gives_up_waiting_lets_the_next_pass():
    turns = queue(("a", 4), ("large", 9), ("small", 1)).without({"arn:large"}, 10)
    assert admitted(turns) == ["a", "small"]


def test_a_cap_that_was_lowered_lets_a_larger_run_start_alone():
    turns = queue(("a", 4), ("b", 9)).without({"arn:a"}, 5)
    assert admitted(turns) == ["b"]


def test_the_queue_survives_its_own_json():
    turns = queue(("a", 4), ("b", 9))
    assert Turns.from_json(turns.to_json(), "queue") == turns
