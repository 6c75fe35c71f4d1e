"""A launch with a recipe: what is stored, what the execution gets, and what its plan makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.client.sdk import Muster
from muster.contract.errors import SpecError
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Plan
from muster.contract.spec.recipe_reference import recipe_key
from muster.control.plan import make_plan
from muster.recipes import Recipe
from tests.memory.harness import ControlHarness
from tests.support.memory_client import muster_of

RECIPE = """run: {name: first, model_type: llm_finetuning_aws}
training_config: {learning_rate: 0.1, steps: 10}
"""
SPEC: dict[str, Any] = {
    "name": "with-recipe",
    "replicas": 1,
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/llmft:1",
    "instance_type": "ml.p5.48xlarge",
    "recipe": {"file": "recipe.yaml", "overrides": {"steps": 20}},
}


@pytest.fixture
def muster(harness: ControlHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Muster:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return muster_of(harness.cloud)


def started(harness: ControlHarness, name: str = "with-recipe") -> dict[str, Any]:
    arn = harness.cloud.workflow.execution_arn(name)
    found: dict[str, Any] = json.loads(
        harness.cloud.client("stepfunctions").describe_execution(executionArn=arn)["input"]
    )
    return found


def planned(harness: ControlHarness) -> Plan:
    request = harness.plan_request("with-recipe")
    request = request.model_copy(update={"input": started(harness)})
    return make_plan(harness.plane, harness.deployment, request)


def test_a_launch_stores_the_recipe_for_the_replicas(harness: ControlHarness, muster: Muster) -> None:
    muster.launch(SPEC)
    asked = started(harness)
    parameters = {"sagemaker_recipe_local_path": "/opt/ml/input/data/recipe/recipe.yaml"}
    assert (asked["recipe"]["family"], asked["hyper_parameters"]) == ("llmft", parameters)
    assert asked["recipe"]["digest"] == Recipe.load(SPEC["recipe"]).resolve().digest
    assert harness.keys("recipes/") == [recipe_key(asked["recipe"]["digest"]).removeprefix("recipes/")]
    plan = planned(harness)
    assert plan.spec.recipe is not None
    (channel,) = [one for one in training_job_request(plan, 0, 1)["InputDataConfig"] if one["ChannelName"] == "recipe"]
    prefix = channel["DataSource"]["S3DataSource"]["S3Uri"]
    assert prefix == f"s3://{harness.cloud.bucket}/recipes/{plan.spec.recipe.digest}/"
    found = harness.plane.store.get(f"recipes/{plan.spec.recipe.digest}/recipe.yaml")
    assert found is not None
    assert "steps: 20" in found.body.decode()


def test_the_same_files_are_the_same_run_from_any_folder(
    harness: ControlHarness, muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = muster.launch(SPEC)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = {**SPEC, "recipe": {**SPEC["recipe"], "file": "../recipe.yaml"}}
    assert muster.launch(again) == first
    assert len(harness.keys("recipes/")) == 1


def test_a_recipe_is_resolved_with_the_model_of_its_spec_as_a_launch_does(
    harness: ControlHarness, muster: Muster, tmp_path: Path
) -> None:
    model = "{model_name_or_path: '{{model_name_or_path}}', ref: '${.model_name_or_path}'}"
    (tmp_path / "recipe.yaml").write_text(f"{RECIPE.strip()[:-1]}, model_config: {model}}}\n")
    spec = {**SPEC, "model": {"s3": "s3://bucket/tuned/"}}
    (tmp_path / "run.yaml").write_text(json.dumps(spec))
    found = Recipe.load("run.yaml").resolve()
    place = "/opt/ml/input/data/model"
    assert found.to_yaml().count(place) == 2
    muster.launch(spec)
    assert started(harness)["recipe"]["digest"] == found.digest
    # What the user wrote stays as it is.
    assert found.spec() == {**spec, "recipe": {**SPEC["recipe"], "file": found.spec()["recipe"]["file"]}}


def test_an_expanded_spec_is_launched_as_it_is(harness: ControlHarness, muster: Muster) -> None:
    muster.launch(SPEC)
    run = muster.launch({**started(harness), "name": "again"})
    assert run.name == "again"
    assert started(harness, "again")["recipe"] == started(harness)["recipe"]


def test_every_problem_is_found_before_anything_is_stored(
    harness: ControlHarness, muster: Muster, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text("def trian(context, steps): ...\n")
    wrong = {
        **SPEC,
        "trainer": "mine:train",
        "source_dir": "code",
        "spott": True,
        "recipe": {"file": "recipe.yaml", "kwargs": "training_config", "overrides": {"stps": 1}},
    }
    with pytest.raises(SpecError) as caught:
        muster.launch(wrong)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["trainer", "recipe.stps (overrides)", "spott"]
    assert harness.keys("") == []
