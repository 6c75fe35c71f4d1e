"""Runs from a recipe on the deployed stack: the digits, and a sweep of four of which one loses its instance."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from examples.digits.trainer import train
from muster.contract.recipe.recipe_reference import RECIPE_FILE, recipe_folder
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Result
from muster.local.faults import LostInstance
from tests.support.command_server import CommandServer
from tests.support.contexts import context_of
from tests.support.deployed import Deployed, Run
from tests.support.page_data import data_in
from tests.support.peers import Run as Training

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS, LORA = EXAMPLES / "digits", EXAMPLES / "frameworks" / "huggingface_lora.yaml"
RATES = [0.0003, 0.001, 0.003, 0.01]
HIDDEN = [64, 64, 128, 128]
LOST = 2


def plan_of(run: Run) -> Plan:
    body = run.document(run.layout.plan)
    assert body is not None
    return Plan.from_json(body, "plan")


def trained_alone(folder: Path, **kwargs: float) -> str:
    """The checksum of the parameters with which the trainer ends where nothing is lost."""
    context = context_of(Training(folder / "run", replicas=1, min_participants=1))
    train(context, rounds=20, inner_steps=60, weight_decay=1.0, seed=0, **kwargs)  # type: ignore[arg-type]
    assert context.rendezvous.training is not None
    return hashlib.sha256(context.rendezvous.training.state.parameters.tobytes()).hexdigest()


def test_the_digits_and_a_sweep_of_them_run_from_a_recipe(
    stack: Deployed, commands: CommandServer, tmp_path: Path
) -> None:
    environment = stack.cloud.environment(os.environ | {"COLUMNS": "140"})

    def muster(*arguments: str) -> str:
        ended = commands.start(arguments, tmp_path, environment, "").finish()
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    lost = stack.cloud.faults.add(LostInstance(job=f"*-sweep-r{LOST}-a1", after_seconds=4.0))
    muster("launch", str(DIGITS / "from_recipe.yaml"), "--name", "digits")
    muster("launch", str(DIGITS / "sweep.yaml"), "--name", "sweep")
    together, apart = stack.run("digits"), stack.run("sweep")
    assert together.wait()["status"] == "SUCCEEDED", together.describe().get("cause")
    assert apart.wait()["status"] == "SUCCEEDED", apart.describe().get("cause")
    lost.wait()

    # One model of four replicas, with what the recipe says, and what the spec replaces in it.
    result, recipe = together.result(), plan_of(together).spec.recipe
    assert (result.committed_rounds, result.parameters_identical) == (20, True)
    assert recipe is not None
    assert plan_of(together).spec.kwargs["weight_decay"] == 0.5
    stored = together.document(f"{recipe_folder(recipe.digest)}{RECIPE_FILE}")
    assert stored is not None
    assert "weight_decay: 0.5" in stored.decode()

    result = apart.result()
    _each_has_its_own_values(result, tmp_path)
    digests = plan_of(apart).spec.recipe
    assert digests is not None
    assert len(set(digests.ranks or [])) == 4
    status = muster("status", "sweep").splitlines()
    assert status[1].split()[:4] == ["rank", "learning_rate", "hidden", "attempt"]
    assert [line.split()[:4] for line in status[2:6]] == [
        [str(rank), f"{rate:g}", str(hidden), "2" if rank == LOST else "1"]
        for rank, (rate, hidden) in enumerate(zip(RATES, HIDDEN, strict=True))
    ]
    assert f"replica {LOST}: succeeded, learning_rate 0.003, hidden 128, 2 attempts, round 20" in muster(
        "result", "sweep"
    )
    muster("model", "sweep", "--rank", str(LOST), "--out", str(tmp_path / "model"))
    assert load_file(tmp_path / "model" / "model.safetensors")
    page = apart.document(apart.layout.page)
    assert page is not None
    shown = data_in(page.decode())
    assert shown["sweep"]["short"] == ["learning_rate", "hidden"]
    assert shown["sweep"]["values"][LOST] == ["0.003", "128"]
    assert shown["rounds"]["members"] == [4] * 20
    assert len(json.dumps(shown["sweep"]["last"])) > 0


def _each_has_its_own_values(result: Result, folder: Path) -> None:
    """Each ends with the parameters of its own values, the rerun one as if nothing had happened."""
    assert [replica.outcome for replica in result.replicas] == [ReplicaOutcome.SUCCEEDED] * 4
    assert [len(replica.attempts) for replica in result.replicas] == [1, 1, 2, 1]
    assert [replica.round for replica in result.replicas] == [20] * 4
    assert [replica.values["learning_rate"] for replica in result.replicas] == RATES
    assert (result.parameters_identical, result.model, result.model_problem) == (None, None, None)
    for rank, replica in enumerate(result.replicas):
        assert replica.model is not None
        assert replica.model.evaluation["accuracy"] > 0.8
        expected = trained_alone(folder / str(rank), learning_rate=RATES[rank], hidden=HIDDEN[rank])
        assert replica.checksum == replica.model.checksum == expected, rank


def test_adapters_are_trained_from_a_recipe(stack: Deployed, commands: CommandServer, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="make test installs it")
    environment = stack.cloud.environment(os.environ | {"COLUMNS": "140"})
    started = commands.start(("launch", str(LORA), "--name", "lora"), tmp_path, environment, "").finish()
    assert started.returncode == 0, started.stderr
    run = stack.run("lora")
    assert run.wait(240)["status"] == "SUCCEEDED", run.describe().get("cause")
    assert plan_of(run).spec.kwargs == {"max_steps": 60, "sync_every": 10, "per_device_batch": 4}
    result = run.result()
    assert (result.committed_rounds, result.parameters_identical) == (6, True)
    assert result.model is not None
    assert result.model.kind == "adapter"
