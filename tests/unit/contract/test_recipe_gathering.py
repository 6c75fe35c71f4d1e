"""Gathering: what is read for a request, in which order, and everything that is wrong with it, at once."""

from __future__ import annotations

import json

import pytest

from muster.contract.errors import SpecError
from muster.contract.recipe.gathering import INFRASTRUCTURE_KEYS, gather
from muster.contract.recipe.places import PlaceError, S3Place, in_s3, s3_place
from muster.contract.recipe.recipe_reader import TEXT_BYTES_MAX
from muster.contract.recipe.recipe_request import read_request
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
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


def _problems(request: object, reader: MemoryReader | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        gather(read_request(request), reader or MemoryReader())
    return [str(problem) for problem in caught.value.problems]


def test_a_text_alone_is_the_file() -> None:
    sources = gather(read_request("recipes/mine.yaml"), MemoryReader(texts={"recipes/mine.yaml": "a: 1"}))
    assert sources.name == "mine"
    assert sources.recipe == SourceText(place="recipes/mine.yaml", text="a: 1")
    assert sources.base is None


def test_every_kind_of_value_is_kept_as_it_is() -> None:
    request = {"file": "r.yaml", "overrides": {"a.b": None}, "values": {"lr": 1e-4}, "inputs": {"x": [1, {}]}}
    sources = gather(read_request(request), MemoryReader(texts={"r.yaml": ""}))
    assert (sources.overrides, sources.values, sources.inputs) == ({"a.b": None}, {"lr": 1e-4}, {"x": [1, {}]})
    again = RecipeSources.from_json(sources.to_json(), "stored")
    assert again == sources
    assert again.digest == sources.digest
    assert gather(read_request({**request, "values": {"lr": 1e-5}}), MemoryReader(texts={"r.yaml": ""})) != sources


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ("s3://bucket/a/r.yaml", "s3://bucket/a/r.yaml"),
        (f"s3://{POINT}/a/r.yaml", f"s3://{POINT}/a/r.yaml"),
        (f"{POINT}/a/r.yaml", f"s3://{POINT}/a/r.yaml"),
        ("s3://bucket/{customer_id}/r.yaml", f"s3://bucket/{ACCOUNT}/r.yaml"),
    ],
)
def test_an_object_is_read_by_each_of_its_names(place: str, read: str) -> None:
    reader = MemoryReader(objects={read: "a: 1"})
    sources = gather(read_request({"base": place}), reader)
    assert sources.base == SourceText(place=read, text="a: 1")
    assert reader.asked == (["account"] if "{" in place else [])


def test_an_access_point_is_the_bucket_and_says_its_region() -> None:
    assert s3_place(f"s3://{POINT}/a/b.yaml") == S3Place(POINT, "a/b.yaml")
    assert s3_place(f"{POINT}/a").region == "us-west-2"
    assert s3_place("s3://bucket/a").region is None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("https://example.com/r.yaml", "on the web, where its content can change"),
        ("HTTP://example.com/r.yaml", "on the web"),
        ("gs://bucket/r.yaml", "unknown scheme gs"),
        ("s3://bucket", "names no object"),
        ("s3://bucket/folder/", "names no object"),
        ("s3:///r.yaml", "names no bucket"),
        ("s3://Bucket_/r.yaml", "names no bucket"),
        (f"s3://{POINT}", "not the ARN of an access point with a key"),
        ("arn:aws:s3:::bucket/r.yaml", "not the ARN of an access point with a key"),
    ],
)
def test_what_names_no_object_is_refused_with_what_may_be_written(place: str, words: str) -> None:
    [problem] = _problems({"file": place})
    assert problem.startswith("recipe.file: ")
    assert words in problem
    assert "s3://bucket/key" in problem


def test_a_windows_path_is_a_file() -> None:
    assert not in_s3("C:\\recipes\\r.yaml")


def test_all_places_are_tried_and_all_problems_found() -> None:
    request = {"file": "no.yaml", "base": "s3://bucket/no.yaml", "override_spec": "https://example.com/x.json"}
    fields = [problem.partition(":")[0] for problem in _problems(request)]
    assert fields == ["recipe.base", "recipe.override_spec", "recipe.file"]


def test_a_request_that_contradicts_itself_names_each_field() -> None:
    hub = {"model": "llama", "technique": "SFT"}
    reader = MemoryReader(texts={"b": "", "o": "{}"}, objects=_FILES, hubs={"SageMakerPublicHub": _hub(_item())})
    found = _problems({"hub": hub, "base": "b", "override_spec": "o"}, reader)
    assert [one.partition(":")[0] for one in found] == ["recipe.base", "recipe.override_spec"]
    assert _problems({}) == ["recipe: names no recipe; set file, base or hub"]
    [problem] = _problems({"file": "b", "checkout": "folder"}, reader)
    assert problem.startswith("recipe.checkout: set without base")


def test_unknown_fields_and_wrong_types_name_the_nearest() -> None:
    with pytest.raises(SpecError) as caught:
        read_request({"fil": "x", "hub": {"model": 3, "technique": "SFT"}})
    words = [str(problem) for problem in caught.value.problems]
    assert any("recipe.fil: unknown field; did you mean file?" in one for one in words)
    assert any(one.startswith("recipe.hub.model: found 3") for one in words)
    with pytest.raises(SpecError, match="recipe: found a list"):
        read_request(["a"])


def test_a_file_beside_a_hub_has_the_name() -> None:
    hubs = {"SageMakerPublicHub": _hub(_item())}
    reader = MemoryReader(texts={"mine.yaml": "a: 1"}, objects=_FILES, hubs=hubs)
    request = {"file": "mine.yaml", "hub": {"model": "llama", "technique": "SFT"}}
    sources = gather(read_request(request), reader)
    assert (sources.name, sources.recipe is not None, sources.base is not None) == ("mine", True, True)


def test_a_file_is_bounded() -> None:
    [problem] = _problems({"file": "r.yaml"}, MemoryReader(texts={"r.yaml": " " * (TEXT_BYTES_MAX + 1)}))
    assert "1,048,577 bytes" in problem


def test_a_hubs_recipe_has_its_template_parameters_image_and_weights() -> None:
    hubs = {"SageMakerPublicHub": _hub(_item(), TrainingArtifactUri="s3://hub-files/weights/")}
    reader = MemoryReader(objects=_FILES, hubs=hubs)
    sources = gather(read_request({"hub": {"model": "llama", "technique": "SFT"}}), reader)
    assert (sources.name, sources.hub_model, sources.sequence_length) == ("llama_sft_lora", "llama", 8192)
    assert sources.base == SourceText(place="s3://hub-files/template.yaml", text="run: {name: '{{name}}'}")
    assert sources.image == "111122223333.dkr.ecr.us-west-2.amazonaws.com/images:sft"
    assert sources.weights == "s3://hub-files/weights/"
    specification = json.loads(sources.override_spec.text if sources.override_spec else "")
    # The infrastructure's placeholders are added, and replace none that the hub has.
    assert specification["name"] == {"type": "string", "default": "mine"}
    assert specification["mlflow_run_name"] == {"type": "string", "default": ""}
    assert set(specification) == {"lr", *INFRASTRUCTURE_KEYS}


def test_an_account_id_in_the_place_of_the_weights_is_filled_in() -> None:
    hubs = {"SageMakerPublicHub": _hub(_item(), TrainingArtifactUri="s3://weights-{customer_id}/llama/")}
    reader = MemoryReader(objects=_FILES, hubs=hubs)
    sources = gather(read_request({"hub": {"model": "llama", "technique": "SFT"}}), reader)
    assert sources.weights == f"s3://weights-{ACCOUNT}/llama/"


def test_a_recipe_without_parameters_still_has_the_placeholders_of_the_infrastructure() -> None:
    hubs = {"SageMakerPublicHub": _hub(_item(SmtjOverrideParamsS3Uri=""), TrainingArtifactUri="https://x")}
    sources = gather(
        read_request({"hub": {"model": "llama", "technique": "SFT"}}), MemoryReader(objects=_FILES, hubs=hubs)
    )
    assert sources.weights is None
    assert sources.override_spec is not None
    assert set(json.loads(sources.override_spec.text)) == set(INFRASTRUCTURE_KEYS)


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


@pytest.mark.parametrize(
    ("request_", "chosen"),
    [
        ({"technique": "SFT"}, "lora8"),
        ({"technique": "SFT", "training_type": "LORA"}, "lora8"),
        ({"technique": "SFT", "training_type": "FULL"}, "full8"),
        ({"technique": "SFT", "sequence_length": "4K"}, "full4"),
        ({"technique": "SFT", "sequence_length": "4096"}, "full4"),
        ({"technique": "SFT", "name": "SUB"}, "sub"),
        ({"technique": "Evaluation"}, "bench"),
        ({"technique": "Evaluation", "name": "judge"}, "judge"),
    ],
)
def test_the_first_recipe_that_fits_is_chosen(request_: dict[str, object], chosen: str) -> None:
    reader = MemoryReader(objects=_FILES, hubs={"SageMakerPublicHub": _hub(*_COLLECTION)})
    assert gather(read_request({"hub": {"model": "llama", **request_}}), reader).name == chosen


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (
            {"technique": "PPO"},
            "technique",
            "no recipe with the technique PPO: SFT, DPO, Evaluation;",
        ),
        (
            {"technique": "DPO"},
            "technique",
            "none of these with a form for training jobs: a form for HyperPod",
        ),
        (
            {"technique": "SFT", "sequence_length": "32K"},
            "sequence_length",
            "none of these with the sequence length 32K: 8K, 4K",
        ),
        (
            {"technique": "SFT", "sequence_length": "4K", "training_type": "LORA"},
            "training_type",
            "and the sequence length 4K, but none of these with the training type LORA: FULL",
        ),
        ({"technique": "SFT", "name": "judge"}, "name", "Llama SFT with LoRA"),
    ],
)
def test_when_none_fits_the_condition_that_left_nothing_is_named(
    request_: dict[str, object], field: str, words: str
) -> None:
    reader = MemoryReader(objects=_FILES, hubs={"SageMakerPublicHub": _hub(*_COLLECTION)})
    [problem] = _problems({"hub": {"model": "llama", **request_}}, reader)
    assert problem.startswith(f"recipe.hub.{field}: llama in SageMakerPublicHub has ")
    assert words in problem
    # What there is, each once.
    assert "SFT LORA 8K (by subscription), SFT LORA 8K, SFT FULL 8K" in problem
    assert "DPO LORA 8K (clusters only)" in problem


@pytest.mark.parametrize(
    "document",
    [[], "text", {"RecipeCollection": "x"}, {"RecipeCollection": [3, None, {"CustomizationTechnique": ["SFT"]}]}],
)
def test_a_hubs_document_that_is_none_is_an_error_of_the_hub(document: object) -> None:
    [problem] = _problems(
        {"hub": {"model": "llama", "technique": "SFT"}}, MemoryReader(hubs={"SageMakerPublicHub": {"llama": document}})
    )
    assert problem.startswith("recipe.hub")


def test_a_template_that_cannot_be_read_and_parameters_that_cannot_are_two_problems() -> None:
    reader = MemoryReader(hubs={"SageMakerPublicHub": _hub(_item())})
    found = _problems({"hub": {"model": "llama", "technique": "SFT"}}, reader)
    assert [one.partition(";")[0] for one in found] == [
        "recipe.hub: s3://hub-files/template.yaml does not exist",
        "recipe.hub: s3://hub-files/params.json does not exist",
    ]


def test_place_errors_have_the_words_of_a_problem() -> None:
    assert str(PlaceError("it is gone", "restore it").problem("recipe.file")) == "recipe.file: it is gone; restore it"
