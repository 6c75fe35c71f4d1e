"""Which recipes there are: in a checkout, or of a model in SageMaker Hub."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from muster.client.client_errors import RecipePlaceError
from muster.contract.document import Document
from muster.options.recipes.client.client_reader import ClientReader
from muster.options.recipes.contract.checkout_recipe import recipe_names
from muster.options.recipes.contract.hub_collection import find_model, tokens_of
from muster.options.recipes.contract.recipe_text import load_recipe_text
from muster.options.recipes.contract.text_places import PlaceError

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

# What the paths of public recipes say. In `…_seq4k_gpu_sft_lora` as in `verl-dpo-…-5k-tt-fft` the parts are words.
_TECHNIQUES = {
    **{word: word.upper() for word in ("sft", "dpo", "rlvr", "rlaif", "ppo", "cpt", "rft", "grpo")},
    "pretrain": "CPT",
    "eval": "Evaluation",
    "tuning": "SFT",
}
_TYPES: dict[str, Literal["LORA", "FULL"]] = {"lora": "LORA", "peft": "LORA", "fft": "FULL", "full": "FULL"}
_LENGTH = re.compile(r"(?:seq)?([0-9]{1,4}k)")


class CatalogEntry(Document):
    """One recipe, as far as its name and its own description say what it is; None where they do not."""

    name: str = Field(description="what `base:` takes, or the recipe's name in the hub")
    title: str | None = Field(default=None, description="its display name")
    family: str | None = Field(default=None, description="the family of models, such as llama")
    model: str | None = Field(default=None, description="the model that it trains")
    technique: str | None = Field(default=None, description="such as SFT, DPO, RLVR, Evaluation")
    training_type: Literal["LORA", "FULL"] | None = None
    sequence_length: str | None = Field(default=None, description="in tokens, such as 4K")
    instance_types: tuple[str, ...] = ()
    usable: bool = Field(default=True, description="false: it is for clusters only, and has no training job's form")


class RecipeCatalog(Document):
    """The recipes of one place, in its order."""

    place: str = Field(description="the checkout's folder, or the hub")
    recipes: tuple[CatalogEntry, ...]
    remarks: tuple[str, ...] = Field(default=(), description="what is left out, and why")


def checkout_recipes(session: Callable[[], AnySession], folder: str) -> RecipeCatalog:
    """The recipes in a checkout of the public recipes, by name. The session is not opened.

    Raises:
        RecipePlaceError: there is no such folder, or it has no recipes.
    """
    reader = ClientReader(session)
    try:
        names = recipe_names(reader.files(folder), folder)
    except PlaceError as error:
        raise RecipePlaceError(error.statement, error.remedy) from None
    entries: list[CatalogEntry] = []
    remarks: list[str] = []
    for name, path in sorted(names.items()):
        try:
            entries.append(_entry(name, reader.read_text(posixpath.join(folder, path))))
        except PlaceError as error:
            remarks.append(f"{path} is left out: {error.statement}")
    return RecipeCatalog(place=folder, recipes=tuple(entries), remarks=tuple(remarks))


def _entry(name: str, text: str) -> CatalogEntry:
    """A recipe by its path, and by what its own text says of itself."""
    category, _, below = name.partition("/")
    family = below.partition("/")[0] if "/" in below else None
    words = re.split(r"[-_]", posixpath.basename(name).lower())
    lengths = [found[1] for word in words if (found := _LENGTH.fullmatch(word))]
    technique = next((_TECHNIQUES[word] for word in reversed(words) if word in _TECHNIQUES), None)
    try:
        said = load_recipe_text(text)
    except ValueError:
        said = {}
    title, types = said.get("display_name"), said.get("instance_types")
    return CatalogEntry(
        name=name,
        title=title if isinstance(title, str) else None,
        family=None if family is None else re.sub(r"-[0-9_]+$", "", family),
        technique="Evaluation" if category == "evaluation" else technique,
        training_type=next((_TYPES[word] for word in words if word in _TYPES), None),
        sequence_length=lengths[-1].upper() if lengths else None,
        instance_types=tuple(one for one in types if isinstance(one, str)) if isinstance(types, list) else (),
    )


def hub_recipes(session: Callable[[], AnySession], model: str, hub: str | None) -> RecipeCatalog:
    """The recipes of a model in SageMaker Hub; a private `hub` is asked first.

    Raises:
        RecipePlaceError: no hub has the model, or a hub may not be read.
        ClientError: AWS cannot be reached or refuses.
    """
    try:
        found = find_model(ClientReader(session), model, hub)
    except PlaceError as error:
        raise RecipePlaceError(error.statement, error.remedy) from None
    entries = [
        CatalogEntry(
            name=recipe.name or recipe.title,
            title=recipe.title or None,
            model=found.name,
            technique=recipe.shown_technique or None,
            training_type=recipe.training_type,
            sequence_length=recipe.sequence_length or None,
            instance_types=recipe.instance_types,
            usable=bool(recipe.template),
        )
        for recipe in found.recipes
    ]
    return RecipeCatalog(place=f"{model} in {found.hub}", recipes=tuple(entries))


def admits(
    recipe: CatalogEntry,
    model: str | None = None,
    technique: str | None = None,
    training_type: str | None = None,
    sequence_length: str | None = None,
) -> bool:
    """Whether a recipe meets every condition; one that is None is met by all."""
    names = [_bare(name) for name in (recipe.name, recipe.title, recipe.model) if name is not None]
    return (
        any(_bare(model or "") in name for name in names)
        and _same(technique, recipe.technique)
        and _same(training_type, recipe.training_type)
        and (sequence_length is None or _tokens(sequence_length) == _tokens(recipe.sequence_length or ""))
    )


def _tokens(length: str) -> int | str:
    found = tokens_of(length)
    return length.upper() if found is None else found


def _same(wanted: str | None, found: str | None) -> bool:
    return wanted is None or wanted.lower() == (found or "").lower()


def _bare(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
