"""Gathering: what is read for a request, in which order, and everything that is wrong with it, at once."""

import json
from functools import partial
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.run.model_lookup import find_model
from muster.contract.training.model_source import ModelSource
from muster.options.recipes.contract.gathering import gather
from muster.options.recipes.contract.hub_collection import RECIPES_MAX, CollectedRecipe, hub_model
from muster.options.recipes.contract.override_spec import SpecifiedValue
from muster.options.recipes.contract.recipe_request import read_request
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.resolution import INFRASTRUCTURE_KEYS, read_recipe
from muster.options.recipes.contract.resolved_recipe import SourceText
from muster.options.recipes.contract.text_places import S3Place, in_s3, s3_place
from tests.support.recipe_readers import ACCOUNT, MemoryReader

POINT = "arn:aws:s3:us-west-2:111122223333:accesspoint/recipes"


def _item(**changes: object) -> dict[str, object]:
    return {
        "Name": "llama_sft_lora",
        "DisplayName": "Llama SFT with LoRA",
        "CustomizationTechnique": "SFT",
        "Type": "FineTuning",
        "Peft": "LORA",
        "SequenceLength": "8K",
        "SmtjRecipeTemplateS3Uri": "s3://hub-files/template.yaml",
        "SmtjOverrideParamsS3Uri": "s3://hub-files/params.json",
        "SmtjImageUri": "111122223333.dkr.ecr.us-west-2.amazonaws.com/images:sft",
        **changes,
    }


def _hub(*items: object, **document: object) -> dict[str, object]:
    return {"llama": {"RecipeCollection": list(items), **document}}


_FILES = {
    "s3://hub-files/template.yaml": "run: {name: '{{name}}'}",
    "s3://hub-files/params.json": json.dumps({"lr": {"type": "float"}, "name": {"type": "string", "default": "mine"}}),
}


_SFT = {"hub": {"model": "llama", "technique": "SFT"}}


def _public(*items: object, texts: dict[str, str] | None = None, **document: object) -> MemoryReader:
    """A reader of the public hub, in which llama has these recipes."""
    return MemoryReader(texts=texts or {}, objects=_FILES, hubs={"SageMakerPublicHub": _hub(*items, **document)})


def _problems(request: object, reader: MemoryReader | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        gather(read_request(request), reader or MemoryReader())
    return [str(problem) for problem in caught.value.problems]


def test_every_kind_of_value_is_kept_as_it_is() -> None:
    request = {"file": "recipes/r.yaml", "overrides": {"a.b": None}, "values": {"lr": 1e-4}, "inputs": {"x": [1, {}]}}
    reader = MemoryReader(texts={"recipes/r.yaml": "a: 1"})
    sources = gather(read_request(request), reader)
    assert (sources.name, sources.base) == ("r", None)
    assert sources.recipe == gather(read_request("recipes/r.yaml"), reader).recipe
    assert sources.recipe == SourceText(place="recipes/r.yaml", text="a: 1")
    assert (sources.overrides, sources.values, sources.inputs) == ({"a.b": None}, {"lr": 1e-4}, {"x": [1, {}]})


def test_an_object_is_read_by_each_of_its_names() -> None:
    for place, read in (
        ("s3://bucket/a/r.yaml", "s3://bucket/a/r.yaml"),
        (f"s3://{POINT}/a/r.yaml", f"s3://{POINT}/a/r.yaml"),
        (f"{POINT}/a/r.yaml", f"s3://{POINT}/a/r.yaml"),
        ("s3://bucket/{customer_id}/r.yaml", f"s3://bucket/{ACCOUNT}/r.yaml"),
    ):
        reader = MemoryReader(objects={read: "a: 1"})
        assert gather(read_request({"base": place}), reader).base == SourceText(place=read, text="a: 1")
        assert reader.asked == (["account"] if "{" in place else []), place
    # An access point is the bucket, and says its region.
    assert s3_place(f"s3://{POINT}/a/b.yaml") == S3Place(POINT, "a/b.yaml", "us-west-2")
    assert s3_place("s3://bucket/a") == S3Place("bucket", "a", None)
    assert not in_s3("C:\\recipes\\r.yaml")


def test_what_names_no_object_is_refused_with_what_may_be_written() -> None:
    for place, words in (
        ("https://example.com/r.yaml", "on the web, where its content can change"),
        ("gs://bucket/r.yaml", "unknown scheme gs"),
        ("s3://bucket/folder/", "names no object"),
        ("s3:///r.yaml", "names no bucket"),
        ("s3://Bucket_/r.yaml", "names no bucket"),
        (f"s3://{POINT}", "not the ARN of an access point with a key"),
    ):
        [problem] = _problems({"file": place})
        assert problem.startswith("recipe.file: ")
        assert words in problem
        assert "s3://bucket/key" in problem, place


def test_all_places_are_tried_and_all_problems_found() -> None:
    [problem] = _problems({"file": "r.yaml"}, MemoryReader(texts={"r.yaml": " " * (TEXT_MAX + 1)}))
    assert "1,048,577 bytes" in problem
    request = {"file": "no.yaml", "base": "s3://bucket/no.yaml", "override_spec": "https://example.com/x.json"}
    fields = [problem.partition(":")[0] for problem in _problems(request)]
    assert fields == ["recipe.base", "recipe.override_spec", "recipe.file"]


def test_a_request_that_contradicts_itself_names_each_field() -> None:
    reader = _public(_item(), texts={"b": "", "o": "{}"})
    found = _problems({**_SFT, "base": "b", "override_spec": "o"}, reader)
    assert [one.partition(":")[0] for one in found] == ["recipe.base", "recipe.override_spec"]
    assert _problems({}) == ["recipe: names no recipe; set file, base or hub"]
    [problem] = _problems({"file": "b", "checkout": "folder"}, reader)
    assert problem.startswith("recipe.checkout: set without base")


def test_unknown_fields_and_wrong_types_name_the_nearest() -> None:
    found = sorted(_problems({"fil": "x", "hub": {"model": 3, "technique": "SFT"}}))
    assert found[0].startswith("recipe.fil: unknown field; did you mean file?")
    assert found[-1].startswith("recipe.hub.model: found 3")
    [problem] = _problems(["a"])
    assert problem.startswith("recipe: found a list")


def test_a_hubs_recipe_has_its_template_parameters_image_and_weights() -> None:
    sources = gather(read_request(_SFT), _public(_item(), TrainingArtifactUri="s3://weights-{customer_id}/llama/"))
    assert (sources.name, sources.hub_model, sources.sequence_length) == ("llama_sft_lora", "llama", 8192)
    assert sources.base == SourceText(place="s3://hub-files/template.yaml", text="run: {name: '{{name}}'}")
    assert sources.image == "111122223333.dkr.ecr.us-west-2.amazonaws.com/images:sft"
    assert sources.weights == f"s3://weights-{ACCOUNT}/llama/"
    assert sources.override_spec == SourceText(
        place="s3://hub-files/params.json", text=_FILES["s3://hub-files/params.json"]
    )
    # The infrastructure's placeholders are added, and replace none that the hub has.
    specification = read_recipe(sources).parameters
    assert specification["name"] == SpecifiedValue(name="name", type="string", default="mine")
    assert specification["mlflow_run_name"] == SpecifiedValue(name="mlflow_run_name", type="string", default="")
    assert set(specification) == {"lr", *INFRASTRUCTURE_KEYS}
    # They are there without parameters, too.
    bare = gather(read_request(_SFT), _public(_item(SmtjOverrideParamsS3Uri=""), TrainingArtifactUri="https://x"))
    assert (bare.weights, bare.override_spec) == (None, None)
    assert set(read_recipe(bare).parameters) == set(INFRASTRUCTURE_KEYS)
    # A file beside it has the name.
    beside = gather(read_request({**_SFT, "file": "mine.yaml"}), _public(_item(), texts={"mine.yaml": "a: 1"}))
    assert (beside.name, beside.recipe is not None, beside.base is not None) == ("mine", True, True)


def test_a_private_hub_is_asked_first_and_the_public_one_is_the_fallback() -> None:
    hubs = {"mine": _hub(_item(Name="mine")), "SageMakerPublicHub": {**_hub(_item()), "other": {}}}
    request = {"model": "llama", "technique": "SFT"}
    reader = MemoryReader(objects=_FILES, hubs=hubs)
    assert gather(read_request({"hub": request | {"hub": "mine"}}), reader).name == "mine"
    assert gather(read_request({"hub": request | {"hub": "empty"}}), reader).name == "llama_sft_lora"
    assert gather(read_request({"hub": request}), reader, default_hub="mine").name == "mine"
    assert reader.asked == ["mine", "empty", "SageMakerPublicHub", "mine"]
    [problem] = _problems({"hub": {"model": "lama", "technique": "SFT", "hub": "mine"}}, reader)
    assert problem.endswith("no model named 'lama' in mine or SageMakerPublicHub; did you mean llama?")


_COLLECTION = (
    _item(Name="sub", IsSubscriptionModel=True),
    _item(Name="lora8"),
    _item(Name="full8", Peft=None),
    _item(Name="full4", Peft=None, SequenceLength="4K"),
    _item(Name="dpo", CustomizationTechnique="DPO", SmtjRecipeTemplateS3Uri=""),
    _item(Name="bench", DisplayName="General benchmark", CustomizationTechnique="", Type="Evaluation", Peft=None),
    _item(Name="judge", DisplayName="LLM judge", CustomizationTechnique="", Type="Evaluation", Peft=None),
)


def test_the_first_recipe_that_fits_is_chosen() -> None:
    for request, chosen in (
        ({"technique": "SFT"}, "lora8"),
        ({"technique": "SFT", "training_type": "FULL"}, "full8"),
        ({"technique": "SFT", "sequence_length": "4096"}, "full4"),
        ({"technique": "SFT", "name": "SUB"}, "sub"),
        ({"technique": "Evaluation"}, "bench"),
        ({"technique": "Evaluation", "name": "judge"}, "judge"),
    ):
        found = gather(read_request({"hub": {"model": "llama", **request}}), _public(*_COLLECTION))
        assert found.name == chosen, request


def test_no_more_recipes_of_a_hub_are_read_than_a_list_may_show() -> None:
    reader = _public(*[{} for _ in range(RECIPES_MAX)], _item())
    [problem] = _problems(_SFT, reader)
    assert "with the technique SFT" in problem


def test_a_recipe_has_all_its_instance_types() -> None:
    types = [f"ml.p{number}.48xlarge" for number in range(RECIPES_MAX + 1)]
    assert CollectedRecipe.model_validate(_item(SupportedInstanceTypes=types)).instance_types == tuple(types)


def test_when_none_fits_the_condition_that_left_nothing_is_named() -> None:
    long, lora = {"sequence_length": "32K"}, {"sequence_length": "4K", "training_type": "LORA"}
    for request, field, words in (
        ({"technique": "PPO"}, "technique", "no recipe with the technique PPO: SFT, DPO, Evaluation;"),
        ({"technique": "DPO"}, "technique", "none of these with a form for training jobs: a form for HyperPod"),
        ({"technique": "SFT", **long}, "sequence_length", "none of these with the sequence length 32K: 8K, 4K"),
        ({"technique": "SFT", **lora}, "training_type", "the sequence length 4K, but none of these with the training"),
        ({"technique": "SFT", "name": "judge"}, "name", "Llama SFT with LoRA"),
    ):
        [problem] = _problems({"hub": {"model": "llama", **request}}, _public(*_COLLECTION))
        assert problem.startswith(f"recipe.hub.{field}: llama in SageMakerPublicHub has ")
        assert words in problem
        # What there is, each once.
        assert "SFT LORA 8K (by subscription), SFT LORA 8K, SFT FULL 8K" in problem
        assert "DPO LORA 8K (clusters only)" in problem


def test_a_hub_that_cannot_be_read_is_a_problem_for_each_file_or_one_of_the_document() -> None:
    for document in (
        [],
        {"RecipeCollection": "x"},
        {"RecipeCollection": [3, None, {"CustomizationTechnique": ["SFT"]}]},
    ):
        [problem] = _problems(_SFT, MemoryReader(hubs={"SageMakerPublicHub": {"llama": document}}))
        assert problem.startswith("recipe.hub"), document
    found = _problems(_SFT, MemoryReader(hubs={"SageMakerPublicHub": _hub(_item())}))
    assert [one.partition(";")[0] for one in found] == [
        "recipe.hub: s3://hub-files/template.yaml does not exist",
        "recipe.hub: s3://hub-files/params.json does not exist",
    ]


def test_a_hubs_model_has_its_weights_and_the_reference_of_a_private_hub() -> None:
    weights = {"TrainingArtifactUri": "s3://hub-files-{customer_id}/llama/v1.2"}
    reader = MemoryReader(hubs={"SageMakerPublicHub": {"llama": weights}, "mine": {"llama": weights}})

    def found(**more: Any) -> ModelSource:
        return find_model(ModelSource(hub="llama", **more), None, partial(hub_model, reader=reader))

    assert found() == ModelSource(hub="llama", s3=f"s3://hub-files-{ACCOUNT}/llama/v1.2")
    private = found(private_hub="mine", accept_eula=True)
    assert private.hub_content_arn == "arn:mine/llama"
    channel = private.channel() or {}
    assert channel["data_source"] == {
        "s3_data_source": {
            # A folder, although its name has a dot.
            "s3_uri": f"s3://hub-files-{ACCOUNT}/llama/v1.2/",
            "model_access_config": {"accept_eula": True},
            "hub_access_config": {"hub_content_arn": "arn:mine/llama"},
        }
    }


def test_a_hubs_model_that_cannot_be_used_says_why() -> None:
    gated = {"TrainingArtifactUri": "s3://x/y/", "GatedBucket": True}
    documents: list[tuple[dict[str, dict[str, object]], str]] = [
        ({"llama": gated}, "llama is a gated model"),
        ({"llama": {}}, "llama in SageMakerPublicHub has no weights"),
        ({}, "there is no model named 'llama' in SageMakerPublicHub"),
    ]
    for models, words in documents:
        with pytest.raises(SpecError) as caught:
            hub_model(ModelSource(hub="llama"), MemoryReader(hubs={"SageMakerPublicHub": models}))
        assert str(caught.value.problems[0]).startswith(f"model.hub: {words}")
