"""Which recipes there are: in a checkout, or of a model in SageMaker Hub."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.client.client_errors import RecipePlaceError
from muster.options.recipes.client.client_reader import ClientReader, LocalFiles
from muster.options.recipes.contract.checkout_recipe import checkout_catalog
from muster.options.recipes.contract.hub_collection import entries, find_content, read_document, tokens_of
from muster.options.recipes.contract.places import PlaceError
from muster.options.recipes.contract.recipe_catalog import CatalogEntry, RecipeCatalog

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession


def checkout_recipes(folder: str) -> RecipeCatalog:
    """The recipes in a checkout of the public recipes.

    Raises:
        RecipePlaceError: there is no such folder.
    """
    try:
        return checkout_catalog(LocalFiles().checkout(folder), folder)
    except PlaceError as error:
        raise RecipePlaceError(error.statement, error.remedy) from None


def hub_recipes(session: Callable[[], AnySession], model: str, hub: str | None) -> RecipeCatalog:
    """The recipes of a model in SageMaker Hub; a private `hub` is asked first.

    Raises:
        RecipePlaceError: no hub has the model, or a hub may not be read.
        ClientError: AWS cannot be reached or refuses.
    """
    try:
        content = find_content(ClientReader(session), model, hub)
        found = entries(content, read_document(content))
    except PlaceError as error:
        raise RecipePlaceError(error.statement, error.remedy) from None
    return RecipeCatalog(place=f"{model} in {content.hub}", recipes=tuple(found))


@dataclass(frozen=True)
class CatalogFilter:
    """Conditions that a recipe must meet; one that is None is met by all."""

    model: str | None = None
    """A part of the recipe's name, title or model. Only letters and digits count: llama-3.1 is found in llama3_1."""
    technique: str | None = None
    training_type: str | None = None
    sequence_length: str | None = None
    """In tokens: 8K and 8192 are the same."""

    def of(self, catalog: RecipeCatalog) -> RecipeCatalog:
        """The catalog with the recipes that meet every condition."""
        return catalog.model_copy(update={"recipes": tuple(one for one in catalog.recipes if self._admits(one))})

    def _admits(self, recipe: CatalogEntry) -> bool:
        names = [_bare(name) for name in (recipe.name, recipe.title, recipe.model) if name is not None]
        return (
            any(_bare(self.model or "") in name for name in names)
            and _same(self.technique, recipe.technique)
            and _same(self.training_type, recipe.training_type)
            and (self.sequence_length is None or _tokens(self.sequence_length) == _tokens(recipe.sequence_length or ""))
        )


def _tokens(length: str) -> int | str:
    found = tokens_of(length)
    return length.upper() if found is None else found


def _same(wanted: str | None, found: str | None) -> bool:
    return wanted is None or wanted.lower() == (found or "").lower()


def _bare(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
