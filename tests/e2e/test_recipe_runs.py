"""Runs from a recipe on the deployed stack: the digits, and a sweep of four of which one loses its instance."""

import os
from pathlib import Path
from shutil import copy

from safetensors.numpy import load_file

from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Result
from muster.contract.spec.recipe_reference import RECIPE_FILE, recipe_folder
from muster.local.faults import LostInstance
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed, Run
from tests.support.workshop import Workshop

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
RATES = [0.0003, 0.001, 0.003, 0.003]
HIDDEN = [64, 64, 128, 128]
LOST, TWIN = 2, 3
"""A rank that loses its instance, and one with the same values that does not."""


def plan_of(run: Run) -> Plan:
    body = run.document(run.layout.plan)
    assert body is not None
    return Plan.from_json(body, "plan")


def test_the_digits_and_a_sweep_of_them_run_from_a_recipe(
    stack: Deployed, commands: CommandServer, tmp_path: Path
) -> None:
    environment = stack.cloud.environment(os.environ | {"COLUMNS": "140"})

    def muster(*arguments: str) -> str:
        ended = commands.start(arguments, tmp_path, environment, "").finish()
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    digits, sweep = Workshop.name("digits"), Workshop.name("sweep")
    lost = stack.cloud.faults.add(LostInstance(job=f"*-{sweep}-r{LOST}-a1", after_seconds=4.0))
    muster("launch", str(DIGITS / "from_recipe.yaml"), "--name", digits)
    example = (DIGITS / "sweep.yaml").read_text(encoding="utf-8")
    (tmp_path / "sweep.yaml").write_text(example.replace("0.003, 0.01]", str(RATES[2:])[1:]), encoding="utf-8")
    copy(DIGITS / "recipe.yaml", tmp_path)
    muster("launch", "sweep.yaml", "--name", sweep)
    together, apart = stack.run(digits), stack.run(sweep)
    assert together.wait()["status"] == "SUCCEEDED", together.describe().get("cause")
    assert apart.wait()["status"] == "SUCCEEDED", apart.describe().get("cause")
    lost.wait()

    # One model of four replicas, with what the recipe says, and what the spec replaces in it.
    result, recipe = together.result(), plan_of(together).spec.recipe
    assert (result.committed_rounds, result.parameters_identical) == (20, True)
    assert recipe is not None
    assert result.recipe is not None
    assert result.recipe.digest == recipe.digest
    assert plan_of(together).spec.kwargs["weight_decay"] == 0.5
    stored = together.document(f"{recipe_folder(recipe.digest)}{RECIPE_FILE}")
    assert stored is not None
    assert "weight_decay: 0.5" in stored.decode()

    result = apart.result()
    _each_has_its_own_values(result)
    digests = plan_of(apart).spec.recipe
    assert digests is not None
    assert len(set(digests.ranks or [])) == 3
    muster("model", sweep, "--rank", str(LOST), "--out", str(tmp_path / "model"))
    assert load_file(tmp_path / "model" / "model.safetensors")


def _each_has_its_own_values(result: Result) -> None:
    """Each ends with the parameters of its own values, the rerun one as if nothing had happened."""
    assert [replica.outcome for replica in result.replicas] == [ReplicaOutcome.SUCCEEDED] * 4
    assert [len(replica.attempts) for replica in result.replicas] == [1, 1, 2, 1]
    assert [replica.round for replica in result.replicas] == [20] * 4
    assert [replica.values["learning_rate"] for replica in result.replicas] == RATES
    assert (result.parameters_identical, result.model, result.model_problem) == (None, None, None)
    for rank, replica in enumerate(result.replicas):
        assert replica.model is not None
        assert replica.model.evaluation["accuracy"] > 0.8
        assert replica.checksum == replica.model.checksum, rank
    checksums = [replica.checksum for replica in result.replicas]
    assert checksums[LOST] == checksums[TWIN]
    assert len(set(checksums)) == len(checksums) - 1
