"""Our agent beside hyperpod-elastic-agent 1.1.3: what that one says in each case is kept in agent_facts.json.

tests/release/oracle/hyperpod_side/agent_facts.py writes the file from the agent's source distribution.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.options.hyperpod.local.agent.agent_state import TRANSITIONS, AgentState, StateBox
from muster.options.hyperpod.local.agent.arguments import parse
from muster.options.hyperpod.local.agent.elastic_agent import Ranks
from muster.options.hyperpod.local.agent.log_rules import AgentLogRule
from tests.support.hyperpod.agent_cases import RULES, STARTS, Clock

FACTS = json.loads((Path(__file__).parent / "agent_facts.json").read_bytes())


def test_the_states_have_the_same_transitions() -> None:
    ours = {state.value: sorted(after.value for after in states) for state, states in TRANSITIONS.items()}
    assert ours == FACTS["transitions"]


def test_rules_find_the_same() -> None:
    for (rule, steps), facts in zip(RULES, FACTS["rules"], strict=True):
        clock = Clock()
        watched, found = AgentLogRule(rule, clock), []
        for seconds, line in steps:
            clock.now += seconds
            state, matched = watched.evaluate(line)
            found.append([state.value, matched])
        assert found == facts, (rule, steps)
    with pytest.raises(ValueError, match="operator"):
        AgentLogRule({"name": "steps", "logPattern": r"step (\d+)", "operator": "above"}, Clock())


def test_a_start_is_refused_where_the_agent_refuses_it() -> None:
    for body, facts in zip(STARTS, FACTS["starts"], strict=True):
        assert is_refused(body) == facts, body


def is_refused(body: dict[str, Any]) -> bool:
    """Whether it says no ranks."""
    try:
        Ranks.of(body)
    except (ValueError, KeyError, TypeError):
        return True
    return False


def test_a_state_moves_only_where_there_is_a_transition() -> None:
    box = StateBox()
    assert not box.set(AgentState.RUNNING)
    assert box.set(AgentState.READY)
    assert box.set(AgentState.RUNNING, reason="Running")
    assert not box.set(AgentState.READY)
    document = box.document()
    assert document["status"] == "running"
    assert document["reason"] == "Running"


def test_the_arguments_of_a_pod_are_understood() -> None:
    found = parse(
        ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=hyperpod", "--tee=3", "--no-python", "run", "--x"]
    )
    assert (found.keeps_output, found.program) == (True, ("run", "--x"))
    assert parse(["train.py", "--nnodes", "3"]).program[1:] == ("-u", "train.py", "--nnodes", "3")


def test_what_the_agent_does_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--nnodes=1:4", "x"], ["--inprocess-restart", "x"], ["--nproc-per-node=gpu", "x"], []):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert "hyperpodrun: error" in capsys.readouterr().err, wrong


def test_the_usage_has_the_names_of_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([])
    usage = " ".join(capsys.readouterr().err.split())
    for words in (
        "[--rdzv-id RDZV_ID]",
        "[--monitor-interval MONITOR_INTERVAL]",
        "[--shutdown-timeout SHUTDOWN_TIMEOUT]",
        "[--server-host SERVER_HOST] [--server-port SERVER_PORT]",
        " program ...",
        "the following arguments are required: program, arguments",
    ):
        assert words in usage
