"""Our agent beside hyperpod-elastic-agent 1.1.3: what that one says in each case is kept in agent_facts.json.

tests/release/oracle/hyperpod_side/agent_facts.py writes the file from the agent's source distribution.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.local.hyperpod.agent.arguments import parse
from muster.local.hyperpod.agent.bodies import BadBodyError, Ranks, Start, Stop, read
from muster.local.hyperpod.agent.log_rules import Rule
from muster.local.hyperpod.agent.states import TRANSITIONS, AgentState, StateBox
from tests.support.hyperpod.agent_cases import BODIES, RULES, Clock

FACTS = json.loads((Path(__file__).parent / "agent_facts.json").read_bytes())
MODELS = {"Start": Start, "Update": Ranks, "Stop": Stop}


def test_the_states_have_the_same_transitions() -> None:
    ours = {state.value: sorted(after.value for after in states) for state, states in TRANSITIONS.items()}
    assert ours == FACTS["transitions"]


def test_rules_find_the_same() -> None:
    for (rule, steps), facts in zip(RULES, FACTS["rules"], strict=True):
        clock = Clock()
        watched, found = Rule(rule, clock), []
        for seconds, line in steps:
            clock.now += seconds
            state, matched = watched.evaluate(line)
            found.append([state.value, matched])
        assert found == facts, (rule, steps)
    with pytest.raises(ValueError, match="operator"):
        Rule({"name": "steps", "logPattern": r"step (\d+)", "operator": "above"}, Clock())


def test_bodies_are_refused_for_the_same_reasons() -> None:
    for (kind, body), facts in zip(BODIES, FACTS["bodies"], strict=True):
        assert refusal(kind, json.dumps(body).encode()) == facts, (kind, body)
    assert refusal("Start", b"{") == [["json_invalid", [1]]]
    assert refusal("Start", b"")
    assert read(Stop, b"{}") == Stop(restart_mode="ipr", is_graceful=None, timeout=None)


def refusal(kind: str, body: bytes) -> list[list[Any]] | None:
    """Why a body is refused: kinds of mistakes and their places."""
    try:
        read(MODELS[kind], body)
    except BadBodyError as error:
        return [[item["type"], item["loc"][1:]] for item in error.detail]  # type: ignore[index]  # documents
    return None


def test_a_state_moves_only_where_there_is_a_transition() -> None:
    box = StateBox()
    assert not box.set(AgentState.RUNNING)
    assert box.set(AgentState.READY)
    assert box.set(AgentState.RUNNING, reason="Running")
    assert not box.set(AgentState.READY)
    document = box.document()
    assert document["status"] == "running"
    assert document["reason"] == "Running"
    assert list(document["transitions"]) == ["INIT", "READY", "RUNNING"]  # type: ignore[call-overload]  # a dict


def test_torchruns_arguments_are_understood() -> None:
    found = parse(
        ["--nnodes=2", "--nproc_per_node", "4", "--rdzv-backend", "hyperpod", "--tee=3", "--no-python", "run", "--x"]
    )
    assert (found.processes, found.tee, found.program) == (4, "3", ("run", "--x"))
    assert parse(["-m", "package.module", "--nnodes", "3"]).program[1:] == (
        "-u",
        "-m",
        "package.module",
        "--nnodes",
        "3",
    )


def test_what_the_agent_does_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--nnodes=1:4", "x"], ["--inprocess-restart", "x"], ["--nproc-per-node=gpu", "x"], []):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert "hyperpodrun: error" in capsys.readouterr().err, wrong
