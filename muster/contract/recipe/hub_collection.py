"""The recipes of a model in SageMaker Hub: its RecipeCollection, and which of its recipes fits a request. Pure.

The hub's document is written by others, so of a recipe only what is well formed counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from muster.contract.recipe.places import PlaceError
from muster.contract.recipe.recipe_catalog import CatalogEntry
from muster.contract.recipe.recipe_reader import HubContent
from muster.contract.recipe.recipe_request import HubRecipe

DOCUMENT_MAX = 327_680  # DescribeHubContent: HubContentDocument
RECIPES_MAX = 1_000
_TEXT_MAX = 2_048
_TYPES_MAX = 100
_LISTED_MAX = 12  # recipes in an error
_EVALUATION = "Evaluation"


@dataclass(frozen=True)
class CollectedRecipe:
    """One item of a RecipeCollection."""

    name: str
    title: str
    technique: str
    kind: str
    """`Type`: `FineTuning`, `Evaluation`."""
    peft: bool
    subscription: bool
    sequence_length: str
    instance_types: tuple[str, ...]
    template: str
    """SmtjRecipeTemplateS3Uri: of training jobs. Empty for a recipe that is for HyperPod clusters only."""
    override_params: str
    image: str

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


@dataclass(frozen=True)
class HubModel:
    """What a hub's document says about a model."""

    recipes: tuple[CollectedRecipe, ...]
    weights: str | None
    """TrainingArtifactUri: the prefix of weights that are ready for training."""
    gated: bool
    """Whether its licence must be accepted."""


def read_document(content: HubContent) -> HubModel:
    """The model in a hub's document.

    Raises:
        PlaceError: it is not a JSON object, or larger than the service allows.
    """
    where = f"the document of {content.model} in {content.hub}"
    if len(content.document) > DOCUMENT_MAX:
        statement = f"{where} has {len(content.document):,} characters; a hub's has at most {DOCUMENT_MAX:,}"
        raise PlaceError(statement, "import it again")
    try:
        document = json.loads(content.document)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        statement = f"{where} is not a JSON object"
        raise PlaceError(statement, "import it again")
    found = document.get("RecipeCollection")
    items = found[:RECIPES_MAX] if isinstance(found, list) else []
    weights = _text(document, "TrainingArtifactUri")
    return HubModel(
        tuple(_recipe(item) for item in items if isinstance(item, dict)),
        weights if weights.startswith("s3://") else None,
        document.get("GatedBucket") is True,
    )


def _recipe(item: dict[str, object]) -> CollectedRecipe:
    types = item.get("SupportedInstanceTypes")
    return CollectedRecipe(
        name=_text(item, "Name"),
        title=_text(item, "DisplayName"),
        technique=_text(item, "CustomizationTechnique"),
        kind=_text(item, "Type"),
        peft=bool(item.get("Peft")),
        subscription=bool(item.get("IsSubscriptionModel")),
        sequence_length=_text(item, "SequenceLength"),
        instance_types=tuple(
            one for one in (types if isinstance(types, list) else [])[:_TYPES_MAX] if isinstance(one, str)
        ),
        template=_text(item, "SmtjRecipeTemplateS3Uri"),
        override_params=_text(item, "SmtjOverrideParamsS3Uri"),
        image=_text(item, "SmtjImageUri"),
    )


def _text(item: dict[str, object], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) and len(value) <= _TEXT_MAX and value.isprintable() else ""


@dataclass(frozen=True)
class _Condition:
    """One condition of a request, in the order in which they are applied."""

    field: str
    wanted: str
    """What it asks for, as an error says it."""
    holds: Callable[[CollectedRecipe], bool]
    shows: Callable[[CollectedRecipe], str]
    """What a recipe has instead."""


def select(request: HubRecipe, content: HubContent, model: HubModel) -> CollectedRecipe:
    """The first recipe that fits; of several one without a subscription.

    Raises:
        PlaceError: none fits; it says what there is, and which condition left nothing. Its field is in `field`.
    """
    left: Sequence[CollectedRecipe] = model.recipes
    if not left:
        statement = f"{content.model} in {content.hub} has no recipes"
        raise UnfitError(statement, "choose another model, or a file", "model")
    met: list[str] = []
    for condition in _conditions(request):
        fitting = [recipe for recipe in left if condition.holds(recipe)]
        if not fitting:
            others = _some([condition.shows(recipe) for recipe in left])
            where = f"{content.model} in {content.hub}"
            statement = (
                f"{where} has recipes with {' and '.join(met)}, but none of these with {condition.wanted}: {others}"
                if met
                else f"{where} has no recipe with {condition.wanted}: {others}"
            )
            remedy = f"choose among its recipes: {_some([str(one) for one in model.recipes])}"
            raise UnfitError(statement, remedy, condition.field)
        left = fitting
        met.append(condition.wanted)
    return next((recipe for recipe in left if not recipe.subscription), left[0])


class UnfitError(PlaceError):
    """No recipe of a model fits; `field` is the part of the request that excluded the last ones."""

    def __init__(self, statement: str, remedy: str, field: str) -> None:
        self.field = field
        super().__init__(statement, remedy)


def _conditions(request: HubRecipe) -> Iterable[_Condition]:
    technique = request.technique
    yield _Condition(
        "technique",
        f"the technique {technique}",
        lambda one: one.technique == technique or (technique == _EVALUATION and one.kind == _EVALUATION),
        lambda one: one.shown_technique,
    )
    yield _Condition(
        "technique",
        "a form for training jobs",
        lambda one: bool(one.template),
        lambda _: "a form for HyperPod clusters only",
    )
    if request.name is not None:
        part = request.name.lower()
        yield _Condition(
            "name",
            f"{request.name!r} in its name or display name",
            lambda one: part in one.name.lower() or part in one.title.lower(),
            lambda one: one.title or one.name,
        )
    if request.sequence_length is not None:
        tokens = tokens_of(request.sequence_length)
        yield _Condition(
            "sequence_length",
            f"the sequence length {request.sequence_length}",
            lambda one: tokens_of(one.sequence_length) == tokens,
            lambda one: one.sequence_length or "no sequence length",
        )
    if request.training_type is not None:
        yield _Condition(
            "training_type",
            f"the training type {request.training_type}",
            lambda one: one.training_type == request.training_type,
            lambda one: one.training_type,
        )


def tokens_of(length: str) -> int | None:
    """`8K` -> 8192, `8192` -> 8192; None for what is neither."""
    text = length.strip().upper()
    digits = text.removesuffix("K")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        return None
    return int(digits) * (1024 if text.endswith("K") else 1)


def _some(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    more = len(different) - _LISTED_MAX
    return ", ".join(different[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def entries(content: HubContent, model: HubModel) -> list[CatalogEntry]:
    """The recipes of a model as a list shows them."""
    return [
        CatalogEntry(
            name=recipe.name or recipe.title,
            title=recipe.title or None,
            model=content.model,
            technique=recipe.shown_technique or None,
            training_type=recipe.training_type,
            sequence_length=recipe.sequence_length or None,
            instance_types=recipe.instance_types,
            usable=bool(recipe.template),
        )
        for recipe in model.recipes
    ]
