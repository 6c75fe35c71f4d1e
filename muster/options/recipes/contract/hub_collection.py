"""The recipes of a model in SageMaker Hub: its RecipeCollection, and which of its recipes fits a request. Pure.

The hub's document is written by others, so of a recipe only what is well formed counts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from muster.contract.errors import SpecError
from muster.contract.text import some_of
from muster.contract.training.model_source import PUBLIC_HUB, ModelSource
from muster.options.recipes.contract.recipe_reader import RecipeReader
from muster.options.recipes.contract.recipe_request import HubRecipe
from muster.options.recipes.contract.text_places import CUSTOMER_ID, PlaceError, refuse

DOCUMENT_MAX = 327_680  # DescribeHubContent: HubContentDocument
RECIPES_MAX = 1_000
_TEXT_MAX = 2_048
_LISTED_MAX = 12  # recipes in an error
_EVALUATION = "Evaluation"


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _TEXT_MAX and value.isprintable() else ""


def _items(kind: type, most: int | None = None) -> BeforeValidator:
    """Of the first `most` items of a list those of this type; none of anything else."""
    return BeforeValidator(
        lambda value: [one for one in value[:most] if isinstance(one, kind)] if isinstance(value, list) else []
    )


def _uri(value: object) -> str:
    text = _text(value)
    return text if text.startswith("s3://") else ""


_Text = Annotated[str, BeforeValidator(_text)]
_Flag = Annotated[bool, BeforeValidator(bool)]


class CollectedRecipe(BaseModel):
    """One item of a RecipeCollection. What is not well formed counts as left out."""

    name: _Text = Field("", alias="Name")
    title: _Text = Field("", alias="DisplayName")
    technique: _Text = Field("", alias="CustomizationTechnique")
    kind: _Text = Field("", alias="Type", description="`FineTuning`, `Evaluation`")
    peft: _Flag = Field(default=False, alias="Peft")
    subscription: _Flag = Field(default=False, alias="IsSubscriptionModel")
    sequence_length: _Text = Field("", alias="SequenceLength")
    instance_types: Annotated[tuple[str, ...], _items(str)] = Field((), alias="SupportedInstanceTypes")
    template: _Text = Field("", alias="SmtjRecipeTemplateS3Uri", description="empty: for HyperPod clusters only")
    override_params: _Text = Field("", alias="SmtjOverrideParamsS3Uri")
    image: _Text = Field("", alias="SmtjImageUri")

    @property
    def training_type(self) -> Literal["LORA", "FULL"]:
        """Adapters, or all weights."""
        return "LORA" if self.peft else "FULL"

    @property
    def shown_technique(self) -> str:
        """Evaluation recipes have their technique in `Type`."""
        return self.technique or self.kind

    def __str__(self) -> str:
        parts = [self.shown_technique, self.training_type, self.sequence_length]
        notes = [] if self.template else ["clusters only"]
        notes += ["by subscription"] if self.subscription else []
        return " ".join(part for part in parts if part) + (f" ({', '.join(notes)})" if notes else "")


class HubModel(BaseModel):
    """A model in a hub, and what the hub's document says about it."""

    hub: str
    name: str
    arn: str
    recipes: Annotated[tuple[CollectedRecipe, ...], _items(dict, RECIPES_MAX)] = Field((), alias="RecipeCollection")
    weights: Annotated[str, BeforeValidator(_uri)] = Field(
        "", alias="TrainingArtifactUri", description="the prefix of weights that are ready for training"
    )
    gated: Annotated[bool, BeforeValidator(lambda value: value is True)] = Field(
        default=False, alias="GatedBucket", description="whether its licence must be accepted"
    )

    @classmethod
    def read(cls, hub: str, name: str, answer: Mapping[str, Any]) -> HubModel:
        """The model in DescribeHubContent's answer.

        Raises:
            PlaceError: its document is no JSON object of a hub's size.
        """
        where, text = f"the document of {name} in {hub}", answer["HubContentDocument"]
        if len(text) > DOCUMENT_MAX:
            refuse(f"{where} has {len(text):,} characters; a hub's has at most {DOCUMENT_MAX:,}", "import it again")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            refuse(f"{where} is not a JSON object", "import it again")
        return cls.model_validate({**document, "hub": hub, "name": name, "arn": answer["HubContentArn"]})


def own_place(uri: str, reader: RecipeReader) -> str:
    """A URI of a hub's document, with the account that reads it."""
    return uri.replace(CUSTOMER_ID, reader.account_id()) if CUSTOMER_ID in uri else uri


def find_model(reader: RecipeReader, name: str, private_hub: str | None) -> HubModel:
    """The model in the private hub, else in SageMakerPublicHub.

    Raises:
        PlaceError: it is in neither, a hub may not be read, or its document is no JSON object of a hub's size.
    """
    hubs = list(dict.fromkeys(hub for hub in (private_hub, PUBLIC_HUB) if hub is not None))
    for hub in hubs:
        if (answer := reader.hub_content(hub, name)) is not None:
            return HubModel.read(hub, name, answer)
    near = difflib.get_close_matches(name, [one for hub in hubs for one in reader.hub_models(hub)], n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]}?" if near else "use its name in the hub (HubContentName)"
    statement = f"there is no model named {name!r} in {' or '.join(hubs)}"
    raise PlaceError(statement, remedy)


def hub_model(source: ModelSource, reader: RecipeReader, default_hub: str | None = None) -> ModelSource:
    """The source, which names a model of a hub, with the place of its weights.

    Raises:
        SpecError: there is no such model, or it cannot be used.
    """
    try:
        model = find_model(reader, source.hub or "", source.private_hub or default_hub)
        if not model.weights:
            statement = f"{model.name} in {model.hub} has no weights for training (TrainingArtifactUri)"
            refuse(statement, "choose another model, or name its weights: {s3: URI}")
        if model.gated and source.accept_eula is not True:
            refuse(f"{model.name} is a gated model", "read its licence; then set accept_eula: true in model")
        place = own_place(model.weights, reader)
    except PlaceError as error:
        raise SpecError([error.problem("model.hub")]) from None
    arn = None if model.hub == PUBLIC_HUB else model.arn
    return source.model_copy(update={"s3": place, "hub_content_arn": arn})


_CONDITIONS: Sequence[tuple[str, str, Callable[[CollectedRecipe, str], bool], Callable[[CollectedRecipe], str]]] = (
    (
        *("technique", "the technique {}"),
        lambda one, technique: one.technique == technique or technique == one.kind == _EVALUATION,
        lambda one: one.shown_technique,
    ),
    (
        *("technique", "a form for training jobs"),
        lambda one, _: bool(one.template),
        lambda _: "a form for HyperPod clusters only",
    ),
    (
        *("name", "{!r} in its name or display name"),
        lambda one, part: part.lower() in one.name.lower() or part.lower() in one.title.lower(),
        lambda one: one.title or one.name,
    ),
    (
        *("sequence_length", "the sequence length {}"),
        lambda one, length: tokens_of(one.sequence_length) == tokens_of(length),
        lambda one: one.sequence_length or "no sequence length",
    ),
    (
        *("training_type", "the training type {}"),
        lambda one, kind: one.training_type == kind,
        lambda one: one.training_type,
    ),
)
"""In their order, each condition's field, its words, whether it holds, and what a recipe has instead."""


def select(request: HubRecipe, model: HubModel) -> CollectedRecipe:
    """The first recipe that fits; of several one without a subscription.

    Raises:
        PlaceError: none fits; it says what there is, and which condition left nothing.
    """
    left: Sequence[CollectedRecipe] = model.recipes
    where = f"{model.name} in {model.hub}"
    if not left:
        refuse(f"{where} has no recipes", "choose another model, or a file", "model")
    met: list[str] = []
    for field, words, holds, shows in _CONDITIONS:
        if (value := getattr(request, field)) is None:
            continue
        wanted, fitting = words.format(value), [recipe for recipe in left if holds(recipe, value)]
        if not fitting:
            so_far = f"recipes with {' and '.join(met)}, but none of these" if met else "no recipe"
            statement = f"{where} has {so_far} with {wanted}: {_some([shows(recipe) for recipe in left])}"
            refuse(statement, f"choose among its recipes: {_some([str(one) for one in model.recipes])}", field)
        left = fitting
        met.append(wanted)
    return next((recipe for recipe in left if not recipe.subscription), left[0])


def tokens_of(length: str) -> int | None:
    """`8K` -> 8192, `8192` -> 8192; None for what is neither."""
    text = length.strip().upper()
    digits = text.removesuffix("K")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        return None
    return int(digits) * (1024 if text.endswith("K") else 1)


def _some(texts: Sequence[str]) -> str:
    return some_of([*dict.fromkeys(texts)], _LISTED_MAX)
