"""What a spec says under `recipe`: where the recipe is, and the values that replace its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError

from muster.contract.document import Document
from muster.contract.errors import Problem, SpecError
from muster.contract.spec.private_values import kind_of
from muster.contract.training.values import LINE, S3_URI_MAX, Wording
from muster.options.recipes.contract.text_places import PlaceError, in_s3

_LOCAL = ("file", "base", "override_spec", "checkout")
_Place = Annotated[
    str, Field(min_length=1, max_length=S3_URI_MAX, pattern=LINE), Wording("a file, or s3://bucket/key, on one line")
]
_Name = Annotated[str, Field(min_length=1, max_length=256, pattern=LINE), Wording("a name on one line")]


class HubRecipe(Document):
    """A recipe of a model in SageMaker Hub: the first one that fits, as its RecipeCollection lists them."""

    model: _Name = Field(description="the model's name in the hub (HubContentName)")
    technique: _Name = Field(description="how the model is customised, such as `SFT`, `DPO`, `RLVR`, `Evaluation`")
    training_type: Literal["LORA", "FULL"] | None = Field(
        default=None, description="adapters, or all weights; default whichever comes first"
    )
    sequence_length: Annotated[
        str | None, Field(pattern=r"^[0-9]+[Kk]?$", max_length=12), Wording("such as 8K or 8192")
    ] = Field(default=None, description="the sequence length that the recipe is for, in tokens")
    name: _Name | None = Field(
        default=None, description="a part of the recipe's name or display name, where the model has several"
    )
    hub: _Name | None = Field(default=None, description="a private hub, asked before SageMakerPublicHub")


class RecipeRequest(Document):
    """A recipe, and the values that replace its own: `values` before `overrides` before `file` before the base.

    The base is `base`, or the recipe that `hub` selects. With neither, `file` is the base.
    """

    file: _Place | None = Field(default=None, description="the user's recipe: YAML; replaces values of the base")
    base: _Place | None = Field(
        default=None, description="the recipe to start from: a file, or its path in `checkout` without `.yaml`"
    )
    checkout: _Place | None = Field(
        default=None, description="a folder with a checkout of the public recipes, where `base` is"
    )
    hub: HubRecipe | None = Field(default=None, description="the recipe to start from, in SageMaker Hub")
    override_spec: _Place | None = Field(
        default=None, description="a JSON file with the type, default and limits of the base's placeholders"
    )
    overrides: dict[str, JsonValue] = Field(
        default_factory=dict, description="values by path: nested, dotted (`a.b.c`), or by a name that occurs once"
    )
    values: dict[str, JsonValue] = Field(
        default_factory=dict, description="values set directly, by the names of the override specification"
    )
    inputs: dict[str, JsonValue] = Field(default_factory=dict, description="values of `{{placeholders}}`, by name")
    kwargs: Annotated[str | None, Field(max_length=256, pattern=LINE), Wording("a path such as training_config")] = (
        Field(default=None, description="with `trainer`: the recipe's section with its keyword arguments")
    )


def read_request(value: object) -> RecipeRequest:
    """The request in the field `recipe` of a spec; a text alone is the file.

    Raises:
        SpecError: with every problem, each below `recipe`.
    """
    # The reader of specs builds the model of whole specs, which may hold a recipe.
    from muster.contract.spec.spec_problems import problems_of  # noqa: PLC0415

    if isinstance(value, str):
        value = {"file": value}
    if not isinstance(value, dict):
        remedy = "write the recipe's file, or a mapping: hub: {model: …, technique: …}"
        raise SpecError([Problem("recipe", kind_of(value), remedy)])
    try:
        return RecipeRequest.model_validate(value)
    except ValidationError as error:
        found = [replace(one, field=f"recipe.{one.field}") for one in problems_of(error, RecipeRequest)]
        raise SpecError(found) from None


def check_elsewhere(document: Mapping[Any, Any]) -> None:
    """Check a spec that is resolved elsewhere, where the files of this machine are not.

    Raises:
        SpecError: with every problem that is known without the recipe.
    """
    from muster.contract.spec.open_spec import problems_beside, with_problems_beside  # noqa: PLC0415
    from muster.contract.spec.spec_reader import unstorable_problems  # noqa: PLC0415

    try:
        request = read_request(document["recipe"])
    except SpecError as error:
        raise with_problems_beside(error, document) from None
    problems = [*unstorable_problems({"recipe": document["recipe"]}), *_local_problems(request)]
    problems += problems_beside(document)
    if problems:
        raise SpecError(problems)


def _local_problems(request: RecipeRequest) -> list[Problem]:
    problems: list[Problem] = []
    for name in _LOCAL:
        place = getattr(request, name)
        try:
            if place is None or in_s3(place):
                continue
        except PlaceError as error:
            problems.append(error.problem(f"recipe.{name}"))
            continue
        remedy = "name an object in S3, or start the run with `muster launch`, which reads files"
        problems.append(Problem(f"recipe.{name}", f"{place!r}, a local file", remedy))
    return problems
