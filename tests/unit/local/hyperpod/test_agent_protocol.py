"""The agent's states and bodies. The facts are those of hyperpod-elastic-agent 1.1.3; the oracle reads them from it."""

from __future__ import annotations

import json

import pytest

from muster.local.hyperpod.agent.arguments import parse
from muster.local.hyperpod.agent.bodies import BadBodyError, Ranks, Start, Stop, read
from muster.local.hyperpod.agent.states import AgentState, StateBox

START = {"rank": 0, "nnodes": 2, "faultCount": 1, "master_addr": "127.0.0.1", "master_port": "29400"}


def test_a_start_needs_ranks_and_the_address_of_the_first() -> None:
    assert read(Start, json.dumps(START).encode()).master_port == 29400
    with pytest.raises(BadBodyError) as refused:
        read(Ranks, b"{}")
    missing = [entry["loc"] for entry in refused.value.detail if isinstance(entry, dict)]
    assert missing == [["body", name] for name in ("rank", "nnodes", "faultCount", "master_addr", "master_port")]


def test_an_empty_address_is_refused() -> None:
    with pytest.raises(BadBodyError) as refused:
        read(Start, json.dumps({**START, "master_addr": ""}).encode())
    assert "Empty master_addr received from operator" in json.dumps(list(refused.value.detail))


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BadBodyError) as refused:
        read(Start, b"{")
    assert "json_invalid" in json.dumps(list(refused.value.detail))
    with pytest.raises(BadBodyError):
        read(Start, b"")


def test_a_stop_may_be_empty() -> None:
    assert read(Stop, b"{}") == Stop(restart_mode="ipr", is_graceful=None, timeout=None)


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


@pytest.mark.parametrize(
    "wrong", [["--nnodes=1:4", "x"], ["--inprocess-restart", "x"], ["--nproc-per-node=gpu", "x"], []]
)
def test_what_the_agent_does_not_have_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(wrong)
    assert "hyperpodrun: error" in capsys.readouterr().err
