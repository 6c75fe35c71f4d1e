"""A spec with a recipe becomes an ordinary spec: what is filled in, what comes first, and what is wrong at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.recipe.expansion import expand, expanded_again, expansion
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.resolved_recipe import Origin
from muster.contract.recipe.unresolved import check_elsewhere, requested_recipe
from muster.contract.run.execution_input import execution_input, start_input
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

LLMFT = """
run: {name: tiny, model_type: llm_finetuning_aws}
trainer: {devices: 8, num_nodes: 2}
training_config:
  model_config: {model_name_or_path: '{{model_name_or_path}}'}
  datasets:
    train_data: {file_path: '{{data_path}}'}
    val_data: {file_path: '{{validation_data_path}}'}
  training_args: {training_dir: '{{output_path}}', learning_rate: '{{learning_rate}}'}
  mlflow: {tracking_uri: '{{mlflow_tracking_uri}}', run_name: '{{mlflow_run_name}}'}
"""
SPECIFICATION = {
    "model_name_or_path": {"type": "string", "default": ""},
    "data_path": {"type": "string", "default": ""},
    "validation_data_path": {"type": "string", "default": ""},
    "output_path": {"type": "string", "default": ""},
    "learning_rate": {"type": "float", "default": 0.001, "min": 0.0, "max": 1.0},
    "mlflow_tracking_uri": {"type": "string", "default": ""},
    "mlflow_run_name": {"type": "string", "default": ""},
}
SPEC: dict[str, Any] = {
    "replicas": 1,
    "image": "llmft:1",
    "instance_type": "ml.p5.48xlarge",
    "recipe": "tiny.yaml",
}
TRAINER_SPEC: dict[str, Any] = {
    "replicas": 2,
    "image": "image:1",
    "trainer": "package.module:train",
    "recipe": {"file": "own.yaml", "kwargs": "training_config"},
}
MLFLOW = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/server"


def sources(base: str = LLMFT, specification: dict[str, Any] | None = None, **fields: Any) -> RecipeSources:
    found = SPECIFICATION if specification is None else specification
    return RecipeSources(
        name=fields.pop("name", "tiny"),
        base=SourceText(place="tiny.yaml", text=base),
        override_spec=SourceText(place="tiny.json", text=json.dumps(found)),
        **fields,
    )


def own(text: str, **fields: Any) -> RecipeSources:
    return RecipeSources(name="own", recipe=SourceText(place="own.yaml", text=text), **fields)


def channel(name: str, uri: str, **source: Any) -> dict[str, Any]:
    return {"channel_name": name, "data_source": {"s3_data_source": {"s3_uri": uri, **source}}}


def recipe_of(document: dict[str, Any], found: RecipeSources) -> dict[str, Any]:
    (recipe,) = expansion(document, found).recipes
    return recipe.document


def problems(document: dict[str, Any], found: RecipeSources) -> list[str]:
    with pytest.raises(SpecError) as caught:
        expand(document, found)
    return [problem.field for problem in caught.value.problems]


# --- what is filled in ---------------------------------------------------------------------------


def test_the_result_is_an_ordinary_spec_that_refers_to_its_recipe() -> None:
    found = sources()
    again = expansion(SPEC, found)
    spec = parse_spec(again.document)
    assert spec.recipe is not None
    assert (spec.recipe.name, spec.recipe.family, spec.recipe.sources) == ("tiny", "llmft", found.digest)
    assert spec.recipe.digest == again.recipes[0].digest
    assert spec.instance_count == 2
    assert spec.hyper_parameters == {"sagemaker_recipe_local_path": "/opt/ml/input/data/recipe/recipe.yaml"}


def test_what_the_spec_sets_comes_first() -> None:
    document = {**SPEC, "instance_count": 4, "hyper_parameters": {"sagemaker_recipe_local_path": "/own", "b": "c"}}
    spec = parse_spec(expand(document, sources(image="hub:1")))
    assert (spec.image, spec.instance_count) == ("llmft:1", 4)
    assert spec.hyper_parameters == {"sagemaker_recipe_local_path": "/own", "b": "c"}


def test_the_document_that_was_given_is_not_changed() -> None:
    document = {**SPEC, "input_data_config": [channel("train", "s3://bucket/sets/")]}
    before = json.dumps(document)
    expand(document, sources(weights="s3://bucket/weights/"))
    assert json.dumps(document) == before


@pytest.mark.parametrize("document", [SPEC, {**SPEC, "input_data_config": [channel("train", "s3://bucket/a.jsonl")]}])
def test_an_expanded_spec_expands_to_itself(document: dict[str, Any]) -> None:
    found = sources(weights="s3://bucket/weights/", image="hub:1")
    first = expand(document, found)
    assert expand(first, found) == first
    # As the input of an execution, and as a plan holds it.
    launched = json.loads(execution_input(parse_spec(first)))
    assert expanded_again(launched, launched, found).document == launched
    planned = parse_spec(first).resolved().model_dump(mode="json")
    assert expanded_again(planned, planned, found).reference == parse_spec(first).recipe


def test_another_recipe_than_that_of_the_digest_is_refused() -> None:
    document = expand(SPEC, sources())
    with pytest.raises(SpecError, match="resolve it again"):
        expanded_again(document, document, sources(overrides={"training_config.training_args.learning_rate": 0.5}))


def test_a_spec_that_was_changed_after_it_was_expanded_is_refused() -> None:
    document = expand(SPEC, sources())
    del document["hyper_parameters"]
    with pytest.raises(SpecError, match="resolve it again"):
        expanded_again(document, document, sources())


# --- what a spec says to its recipe --------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/sets/train.jsonl", "/opt/ml/input/data/train/train.jsonl"),
        ("s3://bucket/sets/train.json.gz", "/opt/ml/input/data/train/train.json.gz"),
        ("s3://bucket/sets/", "/opt/ml/input/data/train"),
        ("s3://bucket/sets", "/opt/ml/input/data/train"),
        ("s3://bucket/sets/v1.2", "/opt/ml/input/data/train"),
        ("s3://bucket/sets/v1.2/", "/opt/ml/input/data/train"),
        ("s3://bucket/llama-3.1-8b/", "/opt/ml/input/data/train"),
        ("s3://bucket/data.d/", "/opt/ml/input/data/train"),
        ("s3://bucket", "/opt/ml/input/data/train"),
    ],
)
def test_the_recipe_names_the_place_where_a_channel_is_mounted(uri: str, path: str) -> None:
    document = {**SPEC, "input_data_config": [channel("train", uri), channel("validation", "s3://bucket/v/")]}
    data = recipe_of(document, sources())["training_config"]["datasets"]
    assert data == {"train_data": {"file_path": path}, "val_data": {"file_path": "/opt/ml/input/data/validation"}}


def test_without_channels_the_defaults_of_the_recipe_hold() -> None:
    assert recipe_of(SPEC, sources())["training_config"]["datasets"]["train_data"] == {"file_path": ""}


def test_what_the_user_gives_comes_before_what_the_spec_says() -> None:
    document = {**SPEC, "input_data_config": [channel("train", "s3://bucket/sets/")]}
    recipe = recipe_of(document, sources(inputs={"data_path": "/own"}))
    assert recipe["training_config"]["datasets"]["train_data"] == {"file_path": "/own"}


def test_the_weights_of_the_hub_come_through_the_channel_model() -> None:
    found = sources(weights="s3://jumpstart/weights/v1.2/")
    result = expansion(SPEC, found)
    (only,) = parse_spec(result.document).input_data_config
    assert only.channel_name == "model"
    assert only.data_source.s3_data_source is not None
    assert only.data_source.s3_data_source.s3_uri == "s3://jumpstart/weights/v1.2/"
    model = result.recipes[0].document["training_config"]["model_config"]  # type: ignore[index, call-overload]
    assert model == {"model_name_or_path": "/opt/ml/input/data/model"}


def test_a_channel_of_the_user_replaces_the_weights_of_the_hub() -> None:
    document = {**SPEC, "input_data_config": [channel("model", "s3://team/tuned/")]}
    spec = parse_spec(expand(document, sources(weights="s3://jumpstart/weights/")))
    assert [one.model_dump(exclude_unset=True) for one in spec.input_data_config] == document["input_data_config"]


@pytest.mark.parametrize(
    "found",
    [
        sources(weights="s3://jumpstart/w/", inputs={"model_name_or_path": "team/model"}),
        sources(
            specification={**SPECIFICATION, "model_name_or_path": {"type": "string", "default": "team/model"}},
            weights="s3://jumpstart/w/",
        ),
    ],
)
def test_weights_that_the_recipe_names_itself_are_not_brought(found: RecipeSources) -> None:
    result = expansion(SPEC, found)
    assert "input_data_config" not in result.document
    model = result.recipes[0].document["training_config"]["model_config"]  # type: ignore[index, call-overload]
    assert model == {"model_name_or_path": "team/model"}


def test_the_trained_model_is_where_sagemaker_uploads_it() -> None:
    assert recipe_of(SPEC, sources())["training_config"]["training_args"]["training_dir"] == "/opt/ml/model"


def test_names_for_mlflow_are_the_recipes_where_none_is_given() -> None:
    document = {**SPEC, "mlflow_config": {"mlflow_resource_arn": MLFLOW, "mlflow_run_name": "own"}}
    result = expansion(document, sources())
    spec = parse_spec(result.document)
    assert spec.mlflow_config is not None
    assert (spec.mlflow_config.mlflow_experiment_name, spec.mlflow_config.mlflow_run_name) == ("tiny", "own")
    logged = result.recipes[0].document["training_config"]["mlflow"]  # type: ignore[index, call-overload]
    assert logged == {"tracking_uri": MLFLOW, "run_name": "own"}


def test_without_a_server_the_recipe_has_no_names_for_mlflow() -> None:
    assert recipe_of(SPEC, sources())["training_config"]["mlflow"] == {"tracking_uri": "", "run_name": ""}


def test_the_number_of_instances_of_the_spec_is_that_of_the_recipe() -> None:
    result = expansion({**SPEC, "instance_count": 4}, sources())
    assert result.recipes[0].document["trainer"] == {"devices": 8, "num_nodes": 4}
    assert expand(result.document, sources()) == result.document


def test_two_numbers_of_instances_of_the_user_are_a_contradiction() -> None:
    found = sources(overrides={"trainer": {"num_nodes": 8}})
    assert problems({**SPEC, "instance_count": 4}, found) == ["instance_count"]


def test_what_follows_from_the_spec_has_the_spec_as_its_source() -> None:
    document = {**SPEC, "instance_count": 4, "input_data_config": [channel("train", "s3://bucket/sets/")]}
    (recipe,) = expansion(document, sources(inputs={"validation_data_path": "/own"})).recipes
    data = ("training_config", "datasets")
    assert recipe.origins[*data, "train_data", "file_path"] is Origin.SPEC
    assert recipe.origins[*data, "val_data", "file_path"] is Origin.INPUT
    assert recipe.origins["trainer", "num_nodes"] is Origin.SPEC
    assert recipe.origins["trainer", "devices"] is Origin.BASE


# --- what is wrong, at once ----------------------------------------------------------------------


def test_problems_of_the_recipe_and_of_the_rest_of_the_spec_come_together() -> None:
    found = sources(specification={})
    fields = problems({**SPEC, "replcas": 2, "volume_gb": 0}, found)
    assert "replcas" in fields
    assert "volume_gb" in fields
    assert any(field.startswith("recipe.") and field.endswith(" (base)") for field in fields)


def test_problems_of_the_family_and_of_the_rest_of_the_spec_come_together() -> None:
    document = {**SPEC, "image": None, "volume_gb": 0, "instance_type": "ml.p5.48xlarge"}
    assert sorted(problems(document, sources())) == ["image", "volume_gb"]


def test_a_recipe_of_no_family_says_what_would_be_one() -> None:
    with pytest.raises(SpecError, match="its sections: lr, layers") as caught:
        expand(SPEC, own("lr: 0.1\nlayers: {n: 2}\n"))
    assert "entrypoint" in str(caught.value)


@pytest.mark.parametrize("name", ["recipe"])
def test_the_channel_of_the_recipe_is_reserved(name: str) -> None:
    document = {**SPEC, "input_data_config": [channel(name, "s3://bucket/own/")]}
    assert problems(document, sources()) == ["input_data_config"]


def test_replicas_of_one_model_need_a_program_that_muster_calls() -> None:
    assert problems({**SPEC, "replicas": 2}, sources()) == ["replicas"]


def test_a_recipes_hyperparameter_must_fit_the_limits_of_the_service() -> None:
    document = {**SPEC, "hyper_parameters": {f"k{index}": "v" for index in range(100)}}
    assert problems(document, sources()) == ["hyper_parameters"]


# --- specs that are not resolved yet -------------------------------------------------------------


def test_a_text_is_the_file_and_an_expanded_spec_asks_for_nothing() -> None:
    request = requested_recipe(SPEC)
    assert request is not None
    assert request.file == "tiny.yaml"
    assert requested_recipe({"replicas": 1}) is None
    assert requested_recipe(expand(SPEC, sources())) is None


def test_a_wrong_request_is_reported_with_the_rest() -> None:
    with pytest.raises(SpecError) as caught:
        requested_recipe({**SPEC, "recipe": {"fil": "x"}, "volume_gb": 0})
    assert [one.field for one in caught.value.problems] == ["recipe.fil", "volume_gb"]


def test_an_unresolved_recipe_is_no_spec() -> None:
    with pytest.raises(SpecError, match="muster launch"):
        parse_spec(SPEC)


def test_a_function_starts_a_spec_whose_recipe_is_in_s3() -> None:
    document = {**SPEC, "recipe": {"file": "s3://bucket/tiny.yaml"}, "name": "one"}
    started = start_input(document)
    assert started.name == "one"
    assert json.loads(started.text) == document


def test_a_function_starts_an_expanded_spec_as_it_is() -> None:
    document = expand(SPEC, sources())
    assert json.loads(start_input(document).text) == document


def test_a_function_cannot_read_files_of_a_machine() -> None:
    document = {**SPEC, "recipe": {"base": "llama/tiny", "checkout": "../recipes"}, "volume_gb": 0}
    with pytest.raises(SpecError) as caught:
        check_elsewhere(document)
    assert [one.field for one in caught.value.problems] == ["recipe.base", "recipe.checkout", "volume_gb"]
    with pytest.raises(SpecError):
        start_input(document)


def test_numbers_that_no_json_has_are_refused_before_a_run_is_started() -> None:
    with pytest.raises(SpecError, match=r"recipe\.values\.lr"):
        start_input({**SPEC, "recipe": {"file": "s3://b/tiny.yaml", "values": {"lr": float("nan")}}})


# --- a trainer of the user's own -----------------------------------------------------------------


def test_keyword_arguments_come_from_the_recipes_section_below_those_of_the_spec() -> None:
    found = own("training_config: {lr: 0.1, optim: {beta: 0.9, eps: 1.0}}\nother: 1\n")
    document = {**TRAINER_SPEC, "kwargs": {"optim": {"beta": 0.5}, "rounds": 3}}
    spec = parse_spec(expand(document, found))
    assert spec.kwargs == {"lr": 0.1, "optim": {"beta": 0.5, "eps": 1.0}, "rounds": 3}
    assert spec.recipe is not None
    assert (spec.recipe.family, spec.recipe.kwargs) == ("trainer", "training_config")
    assert spec.image == "image:1"
    assert spec.hyper_parameters == {}


def test_a_trainer_may_read_its_recipe_itself() -> None:
    document = {**TRAINER_SPEC, "recipe": "own.yaml"}
    assert parse_spec(expand(document, own("lr: 0.1\n"))).kwargs == {}


def test_a_trainer_comes_before_every_other_family() -> None:
    document = {**TRAINER_SPEC, "recipe": "own.yaml"}
    spec = parse_spec(expand(document, sources(image="llmft:1")))
    assert spec.recipe is not None
    assert (spec.recipe.family, spec.image) == ("trainer", "image:1")


def test_a_section_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(SpecError, match=r"recipe\.kwargs: found 'training_config'.*sections: model, optim"):
        expand(TRAINER_SPEC, own("model: {n: 1}\noptim: {lr: 0.1}\nseed: 1\n"))


def test_a_section_needs_a_trainer() -> None:
    document = {**SPEC, "entrypoint": ["python", "train.py"], "recipe": {"file": "own.yaml", "kwargs": "model"}}
    assert problems(document, own("model: {n: 1}\n")) == ["recipe.kwargs"]


def test_every_expanded_spec_is_read_by_the_model_of_specs() -> None:
    assert isinstance(parse_spec(expand(SPEC, sources())), Spec)
