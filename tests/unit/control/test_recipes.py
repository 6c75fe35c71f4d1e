"""The recipe of a run: checked by its plan, or resolved there, and stored for the replicas."""

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
import yaml
from botocore.exceptions import EndpointConnectionError

from muster.contract.document import digest
from muster.contract.errors import SpecError
from muster.contract.layout import STACK_FOLDERS
from muster.contract.run.execution_input import execution_input
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Plan
from muster.contract.spec.recipe_reference import RecipeReference, recipe_key
from muster.contract.training.source_delivery import REFRESH_DAYS
from muster.control.plan import PlanRequest, make_plan
from muster.control.runtime import clock
from muster.options.recipes.contract.expansion import expansion
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from tests.memory import AwsError, Fault
from tests.memory.harness import ControlHarness
from tests.support.control_steps import Row, complete, finished, found
from tests.support.memory_client import muster_of

RECIPE = "run: {model_type: verl}\ntrainer: {num_nodes: 2}\ntraining_config: {lr: 0.1, half: '${.lr}'}\n"
SPEC: dict[str, Any] = {
    "replicas": 1,
    "image": "verl:1",
    "instance_type": "ml.p5.48xlarge",
    "recipe": {"file": "s3://bucket/own/verl.yaml"},
}


def launched(harness: ControlHarness) -> dict[str, Any]:
    """The input of an execution, as a client makes it: the recipe is stored."""
    expanded = expansion(SPEC, RecipeSources(name="verl", recipe=SourceText(place="verl.yaml", text=RECIPE)))
    (recipe,) = expanded.recipes
    harness.plane.store.create(recipe_key(recipe.digest), recipe.to_yaml().encode())
    return expanded.document


def planned(harness: ControlHarness, document: dict[str, Any], run: str = "one") -> Plan:
    request: PlanRequest = harness.plan_request(run).model_copy(update={"input": document})
    return make_plan(harness.plane, harness.deployment, request)


def refusal(harness: ControlHarness, document: dict[str, Any], run: str = "one") -> str:
    before = harness.keys("")
    with pytest.raises(SpecError) as caught:
        planned(harness, document, run)
    assert harness.keys("") == before
    return str(caught.value)


def reference(plan: Plan) -> RecipeReference:
    return found(plan.spec.recipe)


def key_of(plan: Plan) -> str:
    return recipe_key(reference(plan).digest)


def stored(harness: ControlHarness, plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(found(harness.plane.store.get(key_of(plan))).body)
    return document


def is_new(harness: ControlHarness, plan: Plan) -> bool:
    """Whether the recipe of a plan has just been written."""
    return clock.utc_now() - found(harness.plane.store.version(key_of(plan))).written_at < timedelta(seconds=5)


def overwrite(harness: ControlHarness, key: str, body: bytes | None) -> None:
    """Put an object in the place of another; None: delete that one."""
    harness.plane.store.s3.delete_object(Bucket="bucket", Key=key)
    if body is not None:
        harness.plane.store.create(key, body)


def changed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A spec with other fields, of which a mapping changes a part and None takes the field away."""
    parts = {name: {**document[name], **value} if isinstance(value, dict) else value for name, value in change.items()}
    return {name: value for name, value in {**document, **parts}.items() if value is not None}


def test_the_plan_stores_the_recipe_and_the_replicas_read_it_through_a_channel(harness: ControlHarness) -> None:
    plan = planned(harness, launched(harness))
    assert stored(harness, plan)["training_config"] == {"lr": 0.1, "half": 0.1}
    assert digest(stored(harness, plan)) == reference(plan).digest
    assert plan.spec.instance_count == 2
    request: dict[str, Any] = training_job_request(plan, 0, 1)
    (channel,) = request["InputDataConfig"]
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/recipes/{reference(plan).digest}/"}
    assert channel == {"ChannelName": "recipe", "DataSource": {"S3DataSource": source}, "InputMode": "File"}
    assert request["HyperParameters"] == {"sagemaker_recipe_local_path": "/opt/ml/input/data/recipe/recipe.yaml"}
    assert "ContainerEntrypoint" not in request["AlgorithmSpecification"]


def test_the_same_execution_gets_the_same_plan_though_its_recipe_has_changed(harness: ControlHarness) -> None:
    """The plan reads the recipe that a spec only names."""
    harness.plane.store.create("own/verl.yaml", f"\ufeff{RECIPE}".encode())
    first = planned(harness, SPEC)
    assert (reference(first).name, stored(harness, first)["trainer"]) == ("verl", {"num_nodes": 2})
    overwrite(harness, "own/verl.yaml", b"a: 1\n")
    assert planned(harness, SPEC) == first


def test_a_recipe_is_kept_for_as_long_as_the_run_can_need_them(harness: ControlHarness) -> None:
    document = launched(harness)
    first = planned(harness, document)
    harness.cloud.clock.advance(60)
    # What was stored already is left.
    assert reference(planned(harness, document, "two")) == reference(first)
    assert not is_new(harness, first)
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    assert is_new(harness, planned(harness, document, "three"))


def test_a_recipe_that_another_writer_put_there_is_replaced(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    key = recipe_key(launched(harness)["recipe"]["digest"])
    overwrite(harness, key, b"lr: 99\n")
    plan = planned(harness, SPEC)
    assert key_of(plan) == key
    assert digest(stored(harness, plan)) == reference(plan).digest


def test_of_two_plans_at_once_both_have_the_recipe(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"].endswith("/recipe.yaml"),
        action=lambda: planned(harness, SPEC, "rival"),
    )
    harness.cloud.calls.inject(rival)
    plan = planned(harness, SPEC)
    assert rival.fired
    assert digest(stored(harness, plan)) == reference(plan).digest


# --- a continuation ------------------------------------------------------------------------------


def ended(harness: ControlHarness, document: dict[str, Any] | None = None) -> Plan:
    """The plan of a run whose replica has succeeded."""
    given = document or launched(harness)
    harness.executions.start("one", json.dumps(given))
    plan = planned(harness, given)
    harness.arm()
    complete(harness)
    finished(harness)
    harness.cloud.workflow.succeed("one")
    return plan


def continuation(plan: Plan) -> dict[str, Any]:
    """The input of the execution that the continuation policy starts."""
    spec = plan.spec.model_copy(update={"name": None, "resume_from": plan.run})
    document: dict[str, Any] = json.loads(execution_input(spec))
    return document


def test_a_continuation_keeps_the_recipe_of_its_run(harness: ControlHarness) -> None:
    first = ended(harness)
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    second = planned(harness, continuation(first), "one-x2")
    assert reference(second) == reference(first)
    assert stored(harness, second)["training_config"] == {"lr": 0.1, "half": 0.1}
    assert second.lineage is not None
    assert is_new(harness, first)


def test_a_user_continues_a_run_that_only_named_its_recipe_and_the_recipe_has_changed(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    first = ended(harness, SPEC)
    overwrite(harness, "own/verl.yaml", b"a: 1\n")
    muster = muster_of(harness.cloud)
    again = muster.run("one").start_continuation()
    assert again.name == "one-x2"
    assert reference(planned(harness, again.spec(), again.name)) == reference(first)


# --- what is refused -----------------------------------------------------------------------------


def test_a_recipe_that_is_not_what_its_digest_says_is_refused(row: Row) -> None:
    for body in (None, b"training_config: {lr: 99}\n", b"a: [", b"\xff", b"#" * 2**21):
        with row(body and body[:20]) as harness:
            document = launched(harness)
            key = recipe_key(document["recipe"]["digest"])
            overwrite(harness, key, body)
            words = "does not exist" if body is None else "was changed after it was stored"
            assert f"recipe: s3://bucket/{key} {words}; launch the run again" in refusal(harness, document)


def test_a_recipe_of_any_rank_that_is_another_is_refused(harness: ControlHarness) -> None:
    document = launched(harness)
    own = document["recipe"]["digest"]
    document = {**document, "replicas": 2, "sweep": {"environment.A": ["1", "2"]}}
    document["recipe"] = {**document["recipe"], "ranks": [own, own]}
    assert reference(planned(harness, document, "two")).of_rank(1) == own
    document["recipe"] = {**document["recipe"], "ranks": [own, "0" * 64]}
    assert f"{recipe_key('0' * 64)} does not exist" in refusal(harness, document)


def test_a_plan_without_interpolations_to_resolve_imports_no_omegaconf() -> None:
    program = (
        "import sys, muster.options.recipes.control.spec_source, muster.options.recipes.control.function_reader\n"
        "print('omegaconf' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_what_is_no_recipe_is_refused_with_the_rest_of_the_spec(harness: ControlHarness) -> None:
    for recipe, problem in (
        ("own/verl.yaml", "recipe.file: 'own/verl.yaml' is a file, which only your machine has"),
        (SPEC["recipe"], "recipe.file: s3://bucket/own/verl.yaml does not exist"),
        *((one, "recipe") for one in (5, [], {"digest": 5}, {"fil": "x"}, "")),
    ):
        words = refusal(harness, {**SPEC, "recipe": recipe, "volume_gb": 0})
        assert [part for part in (problem, "volume_gb") if part not in words] == [], recipe


def test_a_right_that_is_missing_is_named_with_the_setting(harness: ControlHarness) -> None:
    denied = AwsError("AccessDenied", "no", 403)
    harness.cloud.calls.inject(Fault("GetObject", denied, when=lambda call: call.parameters["Key"] == "own/verl.yaml"))
    words = refusal(harness, SPEC)
    assert "the function plan may not read s3://bucket/own/verl.yaml" in words
    assert 'sources = ["s3://bucket/own/"] in the table [recipes]' in words


def test_the_plan_reads_nothing_for_a_caller_that_only_muster_may_read(harness: ControlHarness) -> None:
    """A run's plan has its environment, hyperparameters and arguments; its fence, result and sources are no one's."""
    harness.executions.start("victim", json.dumps(SPEC))
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    planned(harness, SPEC, "victim")
    keys = [*(f"{folder}/victim/plan.json" for folder in STACK_FOLDERS), "own/../control/victim/plan.json", "/a.yaml"]
    for key in keys:
        harness.plane.store.create(key, b"secret: 1\n")
        for recipe in ({"file": f"s3://bucket/{key}"}, {"base": f"s3://bucket/{key}", "file": SPEC["recipe"]["file"]}):
            assert f"s3://bucket/{key} is in a folder of the stack's bucket" in refusal(
                harness, {**SPEC, "recipe": recipe}
            )


def test_an_access_point_that_cannot_be_reached_is_a_refusal(harness: ControlHarness) -> None:
    place = "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/none/r.yaml"
    for error, said in (
        (AwsError("NoSuchAccessPoint", "no", 404), "does not exist"),
        (EndpointConnectionError(endpoint_url="https://none"), "cannot be reached"),
    ):
        harness.cloud.calls.inject(Fault("GetObject", error, when=lambda call: "accesspoint" in str(call.parameters)))
        assert said in refusal(harness, {**SPEC, "recipe": {"file": place}})
