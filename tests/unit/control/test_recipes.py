"""The recipe of a run: resolved again by its plan, refused when it is another one, and stored for the replicas."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest
import yaml

from muster.client.sdk import Muster
from muster.contract.document import digest
from muster.contract.errors import SpecError
from muster.contract.recipe.expansion import expand
from muster.contract.recipe.recipe_reference import RecipeReference, sources_key
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.resolution import resolve
from muster.contract.recipe.resolved_recipe import Origin, ResolvedRecipe
from muster.contract.run.execution_input import execution_input
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Plan
from muster.contract.run.source_delivery import REFRESH_DAYS
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.finish import finish_run
from muster.control.planning import PlanRequest, make_plan
from muster.control.reporting.announcements import announce_run_started
from muster.control.reporting.report_page import publish_page
from muster.control.runtime import clock
from muster.control.settle import settle
from tests.memory import AwsError, Fault
from tests.memory.harness import ControlHarness, budget
from tests.support.memory_client import client_of
from tests.support.page_data import data_in

RECIPE = "run: {model_type: verl}\ntrainer: {num_nodes: 2}\ntraining_config: {lr: 0.1, half: '${.lr}'}\n"
SPEC: dict[str, Any] = {
    "replicas": 1,
    "image": "verl:1",
    "instance_type": "ml.p5.48xlarge",
    "recipe": {"file": "s3://bucket/own/verl.yaml"},
}


def sources(text: str = RECIPE) -> RecipeSources:
    return RecipeSources(name="verl", recipe=SourceText(place="verl.yaml", text=text))


def launched(harness: ControlHarness, found: RecipeSources | None = None) -> dict[str, Any]:
    """The input of an execution, as a client makes it: the sources are stored."""
    given = found or sources()
    harness.plane.store.create(sources_key(given.digest), given.to_json())
    return expand(SPEC, given)


def planned(harness: ControlHarness, document: dict[str, Any], run: str = "one") -> Plan:
    request: PlanRequest = harness.plan_request(run).model_copy(update={"input": document})
    return make_plan(harness.plane.store, harness.deployment, request)


def refusal(harness: ControlHarness, document: dict[str, Any], run: str = "one") -> str:
    before = harness.keys("")
    with pytest.raises(SpecError) as caught:
        planned(harness, document, run)
    assert harness.keys("") == before
    return str(caught.value)


def reference(plan: Plan) -> RecipeReference:
    assert plan.spec.recipe is not None
    return plan.spec.recipe


def stored(harness: ControlHarness, plan: Plan) -> dict[str, Any]:
    found = harness.plane.store.get(f"recipes/{reference(plan).digest}/recipe.yaml")
    assert found is not None
    document: dict[str, Any] = yaml.safe_load(found.body)
    return document


def test_the_plan_stores_the_recipe_that_its_digest_names(harness: ControlHarness) -> None:
    plan = planned(harness, launched(harness))
    assert stored(harness, plan)["training_config"] == {"lr": 0.1, "half": 0.1}
    assert digest(stored(harness, plan)) == reference(plan).digest
    assert plan.spec.instance_count == 2


def test_the_replicas_read_the_recipe_through_a_channel(harness: ControlHarness) -> None:
    plan = planned(harness, launched(harness))
    request: dict[str, Any] = training_job_request(plan, 0, 1)
    (channel,) = request["InputDataConfig"]
    assert channel == {
        "ChannelName": "recipe",
        "DataSource": {
            "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/recipes/{reference(plan).digest}/"}
        },
        "InputMode": "File",
    }
    assert request["HyperParameters"] == {"sagemaker_recipe_local_path": "/opt/ml/input/data/recipe/recipe.yaml"}
    assert "ContainerEntrypoint" not in request["AlgorithmSpecification"]


def test_a_recipe_that_a_spec_only_names_is_read_by_the_plan(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    plan = planned(harness, SPEC)
    assert reference(plan).name == "verl"
    assert stored(harness, plan)["trainer"] == {"num_nodes": 2}
    kept = harness.plane.store.get(sources_key(reference(plan).sources))
    assert kept is not None
    assert hashlib.sha256(kept.body).hexdigest() == reference(plan).sources
    # The run that continues it has the resolved spec.
    again = json.loads(plan.spec.model_dump_json(exclude_unset=True))
    assert reference(planned(harness, again, "two")) == reference(plan)


def test_a_recipe_that_begins_with_a_byte_order_mark_is_read(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", f"\ufeff{RECIPE}".encode())
    assert stored(harness, planned(harness, SPEC))["trainer"] == {"num_nodes": 2}


def test_the_same_execution_gets_the_same_plan_though_its_recipe_has_changed(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    first = planned(harness, SPEC)
    harness.plane.store.s3.put_object(Bucket="bucket", Key="own/verl.yaml", Body=b"a: 1\n")
    assert planned(harness, SPEC) == first


def test_a_recipe_that_was_stored_already_is_left(harness: ControlHarness) -> None:
    first = planned(harness, launched(harness))
    version = harness.plane.store.version(f"recipes/{reference(first).digest}/recipe.yaml")
    harness.cloud.clock.advance(60)
    second = planned(harness, launched(harness), "two")
    assert reference(second) == reference(first)
    assert harness.plane.store.version(f"recipes/{reference(first).digest}/recipe.yaml") == version


def test_a_recipe_and_its_sources_are_kept_for_as_long_as_the_run_can_need_them(harness: ControlHarness) -> None:
    document = launched(harness)
    planned(harness, document)
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    plan = planned(harness, document, "two")
    for key in (f"recipes/{reference(plan).digest}/recipe.yaml", sources_key(reference(plan).sources)):
        version = harness.plane.store.version(key)
        assert version is not None
        assert clock.utc_now() - version.written_at < timedelta(seconds=5)


def test_a_recipe_that_another_writer_put_there_is_replaced(harness: ControlHarness) -> None:
    document = launched(harness)
    harness.plane.store.create(f"recipes/{document['recipe']['digest']}/recipe.yaml", b"lr: 99\n")
    plan = planned(harness, document)
    assert digest(stored(harness, plan)) == reference(plan).digest


def test_of_two_plans_at_once_both_have_the_recipe(harness: ControlHarness) -> None:
    document = launched(harness)
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"].endswith("/recipe.yaml"),
        action=lambda: planned(harness, document, "rival"),
    )
    harness.cloud.calls.inject(rival)
    plan = planned(harness, document)
    assert rival.fired
    assert digest(stored(harness, plan)) == reference(plan).digest


# --- a continuation, after a deployment ----------------------------------------------------------


def ended(harness: ControlHarness, document: dict[str, Any] | None = None) -> Plan:
    """The plan of a run whose replica has succeeded."""
    given = document or launched(harness)
    harness.executions.start("one", json.dumps(given))
    plan = planned(harness, given)
    harness.arm()
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    finish_run(harness.plane, harness.plane.runs.require("one"), budget(600.0))
    harness.cloud.workflow.succeed("one")
    return plan


def continuation(plan: Plan) -> dict[str, Any]:
    """The input of the execution that the rerun policy starts."""
    spec = plan.spec.model_copy(update={"name": None, "resume_from": plan.run})
    document: dict[str, Any] = json.loads(execution_input(spec))
    return document


def deploy(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of Muster that resolves recipes to something else, with other defaults."""

    def resolved(given: RecipeSources) -> ResolvedRecipe:
        found = resolve(given)
        return replace(
            found, document={**found.document, "added": 1}, origins={**found.origins, ("added",): Origin.BASE}
        )

    monkeypatch.setattr("muster.contract.recipe.expansion.resolve", resolved)
    harness.deployment = replace(harness.deployment, defaults=StackDefaults(tags={"team": "new"}))


def test_a_continuation_after_a_deployment_keeps_the_recipe_of_its_run(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ended(harness)
    deploy(harness, monkeypatch)
    harness.cloud.clock.advance((REFRESH_DAYS + 1) * 86_400)
    second = planned(harness, continuation(first), "one-x2")
    assert reference(second) == reference(first)
    assert stored(harness, second)["training_config"] == {"lr": 0.1, "half": 0.1}
    assert second.lineage is not None
    for key in (f"recipes/{reference(first).digest}/recipe.yaml", sources_key(reference(first).sources)):
        version = harness.plane.store.version(key)
        assert version is not None
        assert clock.utc_now() - version.written_at < timedelta(seconds=5)


def test_a_continuation_by_a_user_after_a_deployment_keeps_the_recipe(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.deployment = replace(harness.deployment, defaults=StackDefaults(tags={"team": "old"}))
    first = ended(harness)
    assert first.spec.tags == {"team": "old"}
    defaults = harness.deployment.defaults
    deploy(harness, monkeypatch)
    harness.deployment = replace(harness.deployment, defaults=defaults)
    again = {**expand(SPEC, sources()), "name": "again", "resume_from": "one"}
    again["recipe"] = reference(first).model_dump(mode="json", exclude_none=True)
    assert reference(planned(harness, again, "again")) == reference(first)


def test_a_user_continues_a_run_that_only_named_its_recipe_and_the_recipe_has_changed(harness: ControlHarness) -> None:
    harness.plane.store.create("own/verl.yaml", RECIPE.encode())
    first = ended(harness, SPEC)
    harness.plane.store.s3.put_object(Bucket="bucket", Key="own/verl.yaml", Body=b"a: 1\n")
    muster = Muster("Muster", boto3.Session(region_name="us-east-1"))
    vars(muster)["_cloud"] = client_of(harness.cloud)
    again = muster.run("one").rerun()
    assert again.name == "one-x2"
    assert reference(planned(harness, again.spec(), again.name)) == reference(first)


@pytest.mark.parametrize("body", [None, b"training_config: {lr: 99}\n", b"a: [", b"\xff", b"#" * 2**21])
def test_a_continuation_whose_stored_recipe_is_another_is_resolved_again(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, body: bytes | None
) -> None:
    first = ended(harness)
    key = f"recipes/{reference(first).digest}/recipe.yaml"
    harness.plane.store.s3.delete_object(Bucket="bucket", Key=key)
    if body is not None:
        harness.plane.store.create(key, body)
    second = planned(harness, continuation(first), "one-x2")
    assert digest(stored(harness, second)) == reference(second).digest == reference(first).digest
    harness.plane.store.s3.delete_object(Bucket="bucket", Key=key)
    deploy(harness, monkeypatch)
    assert "resolve it again" in refusal(harness, continuation(first), "one-x3")


@pytest.mark.parametrize("change", [{"recipe": {"digest": "0" * 64}}, {"instance_count": 3}, {"resume_from": "two"}])
def test_a_continuation_with_another_spec_than_its_run_is_resolved_again(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    document = continuation(ended(harness))
    deploy(harness, monkeypatch)
    for name, value in change.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    assert "resolve it again" in refusal(harness, document, "one-x2")


# --- what is refused -----------------------------------------------------------------------------


def test_sources_that_are_gone_are_named(harness: ControlHarness) -> None:
    document = launched(harness)
    harness.plane.store.s3.delete_object(Bucket="bucket", Key=sources_key(document["recipe"]["sources"]))
    words = refusal(harness, document)
    assert f"recipe.sources: s3://bucket/{sources_key(document['recipe']['sources'])} does not exist" in words
    assert "launch the run again" in words


def test_sources_that_were_changed_are_refused(harness: ControlHarness) -> None:
    document = launched(harness)
    key = sources_key(document["recipe"]["sources"])
    harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=sources("lr: 9").to_json())
    assert "was changed after it was stored" in refusal(harness, document)


def test_sources_of_a_newer_form_are_refused_and_not_tried_again(harness: ControlHarness) -> None:
    document = launched(harness)
    body = json.dumps({**json.loads(sources().to_json()), "version": 9}).encode()
    document["recipe"]["sources"] = hashlib.sha256(body).hexdigest()
    harness.plane.store.create(sources_key(document["recipe"]["sources"]), body)
    assert "recipe.sources" in refusal(harness, document)


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": {"digest": "0" * 64}},
        {"recipe": {"family": "nova"}},
        {"recipe": {"name": "another"}},
        {"hyper_parameters": None},
        {"instance_count": 3},
    ],
)
def test_a_client_that_resolved_to_something_else_is_refused(harness: ControlHarness, change: dict[str, Any]) -> None:
    document = launched(harness)
    for name, value in change.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    words = refusal(harness, {name: value for name, value in document.items() if value is not None})
    assert "resolve it again" in words


def test_files_of_a_machine_cannot_be_read_here(harness: ControlHarness) -> None:
    words = refusal(harness, {**SPEC, "recipe": "own/verl.yaml", "volume_gb": 0})
    assert "recipe.file: 'own/verl.yaml' is a file, which only your machine has" in words
    assert "volume_gb" in words


def test_an_object_that_does_not_exist_is_named_with_the_rest(harness: ControlHarness) -> None:
    words = refusal(harness, {**SPEC, "volume_gb": 0})
    assert "recipe.file: s3://bucket/own/verl.yaml does not exist" in words
    assert "volume_gb" in words


@pytest.mark.parametrize(
    ("body", "words"), [(b"\xff", "is not UTF-8 text"), (b"a: [", "recipe"), (b"", "recipe"), (b"x" * 2**21, "bytes")]
)
def test_an_object_that_is_no_recipe_is_a_problem(harness: ControlHarness, body: bytes, words: str) -> None:
    harness.plane.store.create("own/verl.yaml", body)
    assert words in refusal(harness, SPEC)


def test_a_right_that_is_missing_is_named_with_the_setting(harness: ControlHarness) -> None:
    denied = AwsError("AccessDenied", "no", 403)
    harness.cloud.calls.inject(Fault("GetObject", denied, when=lambda call: call.parameters["Key"] == "own/verl.yaml"))
    words = refusal(harness, SPEC)
    assert "the function plan may not read s3://bucket/own/verl.yaml" in words
    assert 'sources = ["s3://bucket/own/"] in the table [recipes]' in words


@pytest.mark.parametrize("found", [5, [], {"digest": 5}, {"fil": "x"}, ""])
def test_what_is_no_recipe_is_refused(harness: ControlHarness, found: Any) -> None:
    assert "recipe" in refusal(harness, {**SPEC, "recipe": found})


# --- what people see of it -----------------------------------------------------------------------


def test_the_result_the_event_and_the_page_say_which_recipe_it_was(harness: ControlHarness) -> None:
    harness.executions.start("one", "{}")
    plan = planned(harness, launched(harness))
    shown = {"name": "verl", "family": "llmft", "digest": reference(plan).digest}
    announce_run_started(harness.plane.bus, plan)
    [entry] = harness.cloud.events.entries
    assert entry.detail["recipe"] == shown
    run = harness.plane.runs.require("one")
    harness.arm()
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    result = settle(run, budget(600.0))
    assert result.recipe is not None
    assert result.recipe.model_dump() == shown
    publish_page(run, result, budget(60.0))
    page = harness.plane.store.get(plan.layout.page)
    assert page is not None
    facts = {fact["label"]: fact for fact in data_in(page.body.decode())["facts"]}
    digest = reference(plan).digest
    assert facts["Recipe"] == {"label": "Recipe", "value": "verl", "note": f"family llmft, digest {digest[:12]}"}


def test_only_a_plan_of_a_recipe_imports_the_resolver() -> None:
    code = """
import sys
import muster.control.attempt, muster.control.planning, muster.control.react, muster.control.settle
import muster.control.start, muster.control.stop, muster.control.sweep
print(*[name for name in sys.modules if name == "yaml" or name.startswith("muster.contract.recipe.")])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["muster.contract.recipe.recipe_reference"]
