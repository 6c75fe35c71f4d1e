"""The order and the times of conditions."""

from __future__ import annotations

from muster.local.hyperpod.operator.conditions import with_condition, without


def types(conditions: list[dict[str, str]]) -> list[str]:
    return [item["type"] for item in conditions]


def test_a_condition_that_becomes_true_moves_to_the_end() -> None:
    found = with_condition(None, "Running", "True", "1")
    found = with_condition(found, "Restarting", "True", "2")
    found = with_condition(found, "Running", "False", "3")
    assert types(found) == ["Running", "Restarting"]
    found = with_condition(without(found, "Restarting"), "Running", "True", "4")
    assert types(found) == ["Running"]
    assert found[0]["lastTransitionTime"] == "4"


def test_the_time_is_that_of_the_last_transition() -> None:
    found = with_condition(None, "Running", "True", "1", reason="Running")
    again = with_condition(found, "Running", "True", "2", reason="Running", message="The fault was remediated.")
    assert again[0]["lastTransitionTime"] == "1"
    assert again[0]["message"] == "The fault was remediated."


def test_nothing_changes_where_all_is_the_same() -> None:
    found = with_condition(None, "Created", "True", "1")
    assert with_condition(found, "Created", "True", "9") == found
