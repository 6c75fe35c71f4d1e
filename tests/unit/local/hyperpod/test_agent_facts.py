"""Our agent beside hyperpod-elastic-agent 1.1.3: what that one says in each case is kept in agent_facts.json.

tests/oracle/hyperpod_side/agent_facts.py writes the file from the agent's source distribution.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.local.hyperpod.agent.bodies import BadBodyError, Ranks, Start, Stop, read
from muster.local.hyperpod.agent.log_rules import Rule
from muster.local.hyperpod.agent.states import TRANSITIONS
from tests.support.hyperpod.agent_cases import BODIES, RULES, Clock, Steps

FACTS = json.loads((Path(__file__).parent / "agent_facts.json").read_bytes())
MODELS = {"Start": Start, "Update": Ranks, "Stop": Stop}


def test_the_states_have_the_same_transitions() -> None:
    ours = {state.value: sorted(after.value for after in states) for state, states in TRANSITIONS.items()}
    assert ours == FACTS["transitions"]


@pytest.mark.parametrize(("case", "facts"), list(zip(RULES, FACTS["rules"], strict=True)))
def test_rules_find_the_same(case: tuple[dict[str, Any], Steps], facts: list[list[str | None]]) -> None:
    clock = Clock()
    watched, found = Rule(case[0], clock), []
    for seconds, line in case[1]:
        clock.now += seconds
        state, matched = watched.evaluate(line)
        found.append([state.value, matched])
    assert found == facts


@pytest.mark.parametrize(("case", "facts"), list(zip(BODIES, FACTS["bodies"], strict=True)))
def test_bodies_are_refused_for_the_same_reasons(case: tuple[str, Any], facts: list[list[Any]] | None) -> None:
    found = None
    try:
        read(MODELS[case[0]], json.dumps(case[1]).encode())
    except BadBodyError as error:
        found = [[item["type"], item["loc"][1:]] for item in error.detail]  # type: ignore[index]  # documents
    assert found == facts
