"""A spec with a recipe becomes an ordinary spec: what is filled in, what comes first, and what is wrong at once."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contract.errors import SpecError
from muster.contract.run.execution_input import execution_input, start_input
from muster.contract.spec.open_spec import is_reference
from muster.contract.spec.recipe_reference import Origin
from muster.contract.spec.spec_reader import parse_spec
from muster.options.recipes.contract.expansion import expansion
from muster.options.recipes.contract.recipe_request import check_elsewhere, read_request
from muster.options.recipes.contract.recipe_text import recipe_yaml
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from tests.support.full_specs import channel, s3

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
    **{name: {"type": "string", "default": ""} for name in re.findall(r"{{(\w+)}}", LLMFT)},
    "learning_rate": {"type": "float", "default": 0.001, "min": 0.0, "max": 1.0},
}
SPEC: dict[str, Any] = {"replicas": 1, "image": "llmft:1", "instance_type": "ml.p5.48xlarge", "recipe": "tiny.yaml"}
TRAINER_SPEC: dict[str, Any] = {
    "replicas": 2,
    "image": "image:1",
    "trainer": "package.module:train",
    "recipe": {"file": "own.yaml", "kwargs": "training_config"},
}
MLFLOW = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/server"


def expand(document: dict[str, Any], found: RecipeSources) -> dict[str, Any]:
    return expansion(document, found).document


def sources(base: str = LLMFT, specification: dict[str, Any] | None = None, **fields: Any) -> RecipeSources:
    found = SPECIFICATION if specification is None else specification
    return RecipeSources(
        name="tiny",
        base=SourceText(place="tiny.yaml", text=base),
        override_spec=SourceText(place="tiny.json", text=json.dumps(found)),
        **fields,
    )


def own(text: str) -> RecipeSources:
    return RecipeSources(name="own", recipe=SourceText(place="own.yaml", text=text))


def reading(*channels: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**SPEC, "input_data_config": list(channels), **fields}


def at(uri: str, name: str = "train") -> dict[str, Any]:
    return channel(name, s3(s3_uri=uri))


def section(document: dict[str, Any], found: RecipeSources, name: str = "training_config") -> Any:
    (recipe,) = expansion(document, found).recipes
    return recipe.document[name]


def problems(document: dict[str, Any], found: RecipeSources) -> list[str]:
    with pytest.raises(SpecError) as caught:
        expand(document, found)
    return [problem.field for problem in caught.value.problems]


# --- what is filled in ---------------------------------------------------------------------------


def test_what_the_spec_sets_comes_first_and_the_spec_is_not_changed() -> None:
    parameters = {"sagemaker_recipe_local_path": "/own", "b": "c"}
    document = reading(at("s3://bucket/sets/"), instance_count=4, hyper_parameters=parameters)
    before = json.dumps(document)
    spec = parse_spec(expand(document, sources(image="hub:1", weights="s3://bucket/weights/")))
    assert (spec.image, spec.instance_count, spec.hyper_parameters) == ("llmft:1", 4, parameters)
    assert json.dumps(document) == before


def test_an_expanded_spec_refers_to_its_recipe() -> None:
    found = expansion(SPEC, sources(weights="s3://bucket/weights/", image="hub:1"))
    recipe = parse_spec(found.document).recipe
    assert recipe is not None
    assert (recipe.name, recipe.family, recipe.digest) == ("tiny", "llmft", found.recipes[0].digest)
    assert json.loads(execution_input(parse_spec(found.document)))["recipe"] == found.document["recipe"]


# --- what a spec says to its recipe --------------------------------------------------------------

PLACES = {
    "s3://bucket/sets/train.jsonl": "/train.jsonl",
    "s3://bucket/sets": "",
    "s3://bucket/sets/v1.2": "",
    "s3://bucket/data.d/": "",
    "s3://bucket": "",
}


def test_the_recipe_names_the_place_where_a_channel_is_mounted() -> None:
    for uri, name in PLACES.items():
        document = reading(at(uri), at("s3://bucket/v/", "validation"))
        assert section(document, sources())["datasets"] == {
            "train_data": {"file_path": f"/opt/ml/input/data/train{name}"},
            "val_data": {"file_path": "/opt/ml/input/data/validation"},
        }, uri


def test_what_the_user_gives_comes_before_what_the_spec_says_and_a_default_last() -> None:
    alone = section(SPEC, sources())
    assert alone["datasets"]["train_data"] == {"file_path": ""}
    # The model is where SageMaker uploads it, and there is nothing to track.
    assert alone["training_args"]["training_dir"] == "/opt/ml/model"
    assert alone["mlflow"] == {"tracking_uri": "", "run_name": ""}
    found = section(reading(at("s3://bucket/sets/")), sources(inputs={"data_path": "/own"}))
    assert found["datasets"]["train_data"] == {"file_path": "/own"}


def test_the_weights_of_the_hub_come_through_the_channel_model() -> None:
    found = sources(weights="s3://jumpstart/weights/v1.2/")
    source = {"s3_data_type": "S3Prefix", "s3_uri": "s3://jumpstart/weights/v1.2/"}
    weights = {"channel_name": "model", "data_source": {"s3_data_source": source}, "input_mode": "File"}
    assert expand(SPEC, found)["input_data_config"] == [weights]
    assert section(SPEC, found)["model_config"] == {"model_name_or_path": "/opt/ml/input/data/model"}
    # Not where the user has that channel, nor where the recipe names a model itself.
    tuned = at("s3://team/tuned/", "model")
    assert expand(reading(tuned), found)["input_data_config"] == [tuned]
    default = {**SPECIFICATION, "model_name_or_path": {"type": "string", "default": "team/model"}}
    for named in ({"inputs": {"model_name_or_path": "team/model"}}, {"specification": default}):
        found = sources(weights="s3://jumpstart/w/", **named)
        assert "input_data_config" not in expand(SPEC, found), named
        assert section(SPEC, found)["model_config"] == {"model_name_or_path": "team/model"}, named


def test_names_for_mlflow_are_the_recipes_where_none_is_given() -> None:
    document = {**SPEC, "mlflow_config": {"mlflow_resource_arn": MLFLOW, "mlflow_run_name": "own"}}
    spec = parse_spec(expand(document, sources()))
    assert spec.mlflow_config is not None
    assert (spec.mlflow_config.mlflow_experiment_name, spec.mlflow_config.mlflow_run_name) == ("tiny", "own")
    assert section(document, sources())["mlflow"] == {"tracking_uri": MLFLOW, "run_name": "own"}


def test_the_number_of_instances_of_the_spec_is_that_of_the_recipe() -> None:
    assert section({**SPEC, "instance_count": 4}, sources(), "trainer") == {"devices": 8, "num_nodes": 4}
    assert expand(SPEC, sources())["instance_count"] == 2


def test_two_numbers_of_instances_of_the_user_are_a_contradiction() -> None:
    found = sources(overrides={"trainer": {"num_nodes": 8}})
    assert problems({**SPEC, "instance_count": 4}, found) == ["instance_count"]


def test_what_follows_from_the_spec_has_the_spec_as_its_source() -> None:
    document = reading(at("s3://bucket/sets/"), instance_count=4)
    (recipe,) = expansion(document, sources(inputs={"validation_data_path": "/own"})).recipes
    data = ("training_config", "datasets")
    assert recipe.origins[*data, "train_data", "file_path"] is Origin.SPEC
    assert recipe.origins[*data, "val_data", "file_path"] is Origin.INPUT
    assert recipe.origins["trainer", "num_nodes"] is Origin.SPEC
    assert recipe.origins["trainer", "devices"] is Origin.BASE


# --- what is wrong, at once ----------------------------------------------------------------------


def test_problems_of_the_recipe_its_family_and_the_rest_of_the_spec_come_together() -> None:
    fields = problems({**SPEC, "replcas": 2, "volume_gb": 0}, sources(specification={}))
    assert {"replcas", "volume_gb"} < set(fields)
    assert any(field.startswith("recipe.") and field.endswith(" (base)") for field in fields)
    assert sorted(problems({**SPEC, "image": None, "volume_gb": 0}, sources())) == ["image", "volume_gb"]


def test_what_a_recipe_cannot_be_run_with_names_its_field() -> None:
    many = {f"k{index}": "v" for index in range(100)}
    kwargs = {"entrypoint": ["python", "train.py"], "recipe": {"file": "own.yaml", "kwargs": "model"}}
    for document, found, field in (
        # Its channel is reserved, and its hyperparameter must fit the service's limit.
        (reading(at("s3://bucket/own/", "recipe")), sources(), "input_data_config"),
        ({**SPEC, "hyper_parameters": many}, sources(), "hyper_parameters"),
        # Replicas of one model need a program that Muster calls, and a section needs a trainer.
        ({**SPEC, "replicas": 2}, sources(), "replicas"),
        ({**SPEC, **kwargs}, own("model: {n: 1}\n"), "recipe.kwargs"),
    ):
        assert problems(document, found) == [field]
    with pytest.raises(SpecError, match=r"its sections: lr, layers.*entrypoint"):
        expand(SPEC, own("lr: 0.1\nlayers: {n: 2}\n"))


# --- specs that are not resolved yet -------------------------------------------------------------


def test_a_text_is_the_file_and_an_expanded_spec_asks_for_nothing() -> None:
    assert read_request(SPEC["recipe"]).file == "tiny.yaml"
    assert not is_reference(SPEC["recipe"])
    assert is_reference(expand(SPEC, sources())["recipe"])
    with pytest.raises(SpecError) as caught:
        check_elsewhere({**SPEC, "recipe": {"fil": "x"}, "volume_gb": 0})
    assert [one.field for one in caught.value.problems] == ["recipe.fil", "volume_gb"]
    with pytest.raises(SpecError, match="muster launch"):
        parse_spec(SPEC)


def test_a_function_starts_a_spec_that_is_expanded_or_whose_recipe_is_in_s3() -> None:
    document = {**SPEC, "recipe": {"file": "s3://bucket/tiny.yaml"}, "name": "one"}
    started = start_input(document)
    assert started.name == "one"
    assert json.loads(started.text) == document
    document = expand(SPEC, sources())
    assert json.loads(start_input(document).text) == document
    with pytest.raises(SpecError, match=r"recipe\.values\.lr"):
        start_input({**SPEC, "recipe": {"file": "s3://b/tiny.yaml", "values": {"lr": float("nan")}}})


def test_a_function_cannot_read_files_of_a_machine() -> None:
    document = {**SPEC, "recipe": {"base": "llama/tiny", "checkout": "../recipes"}, "volume_gb": 0}
    for check in (check_elsewhere, start_input):
        with pytest.raises(SpecError) as caught:
            check(document)
        assert [one.field for one in caught.value.problems] == ["recipe.base", "recipe.checkout", "volume_gb"]


# --- a trainer of the user's own -----------------------------------------------------------------


def test_keyword_arguments_come_from_the_recipes_section_below_those_of_the_spec() -> None:
    found = own("training_config: {lr: 0.1, optim: {beta: 0.9, eps: 1.0}}\nother: 1\n")
    document = {**TRAINER_SPEC, "kwargs": {"optim": {"beta": 0.5}, "rounds": 3}}
    spec = parse_spec(expand(document, found))
    assert spec.kwargs == {"lr": 0.1, "optim": {"beta": 0.5, "eps": 1.0}, "rounds": 3}
    assert spec.recipe is not None
    assert (spec.recipe.family, spec.recipe.kwargs) == ("trainer", "training_config")
    assert (spec.image, spec.hyper_parameters) == ("image:1", {})
    with pytest.raises(SpecError, match=r"recipe\.kwargs: found 'training_config'.*sections: model, optim"):
        expand(TRAINER_SPEC, own("model: {n: 1}\noptim: {lr: 0.1}\nseed: 1\n"))


def test_a_trainer_comes_before_every_other_family_and_may_read_its_recipe_itself() -> None:
    spec = parse_spec(expand({**TRAINER_SPEC, "recipe": "own.yaml"}, sources(image="llmft:1")))
    assert spec.recipe is not None
    assert (spec.recipe.family, spec.image, spec.kwargs) == ("trainer", "image:1", {})


# --- whatever a spec and its recipe hold ---------------------------------------------------------

NAMES = st.sampled_from(
    (
        *("run", "trainer", "training_config", "evaluation", "processor", "model_type", "model_name_or_path"),
        *("num_nodes", "replicas", "lambda_arn", "distillation_data", "kms_key", "instance_types", "exp_dir", "lr"),
    )
)
TEXTS = st.sampled_from(
    ["", "verl", "amazon.nova-x", "ml.p5.48xlarge", "s3://bucket/a/", "arn:aws:x", "{{data_path}}", "${.lr}", "/a"]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 5), st.floats(allow_nan=False), TEXTS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    (
        *("replicas", "trainer", "kwargs", "entrypoint", "arguments", "input_data_config", "mlflow_config", "hook"),
        *("instance_type", "instance_count", "overrides", "hyper_parameters", "model_package_config", "recipe"),
        *("fallback_instance_types", "instance_preferences", "sweep", "role_arn", "image", "checkpoint_config"),
        *("model", "no_such_field"),
    )
)
RECIPES = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.fixed_dictionaries(
        {"run": st.fixed_dictionaries({"model_type": TEXTS, "model_name_or_path": SCALARS}), "training_config": VALUES}
    ),
)


@settings(max_examples=120)
@given(
    st.dictionaries(FIELDS, VALUES | st.just([at("s3://bucket/a.jsonl")]), max_size=5),
    RECIPES,
    st.dictionaries(NAMES, SCALARS, max_size=2),
    st.booleans(),
)
def test_only_our_error_is_raised(
    fields: dict[str, Any], recipe: dict[str, Any], overrides: dict[str, Any], sound: bool
) -> None:
    document = {**SPEC, **fields} if sound else fields
    of_recipe = RecipeSources(
        name="r",
        base=SourceText(place="r.yaml", text=recipe_yaml(recipe)),
        overrides=overrides,
        weights="s3://bucket/weights/",
    )
    try:
        found = expand(document, of_recipe)
    except SpecError:
        return
    assert parse_spec(found).recipe is not None
