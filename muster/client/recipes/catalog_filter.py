"""Which recipes of a catalog are listed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.contract.recipe.hub_collection import tokens_of
from muster.contract.recipe.recipe_catalog import CatalogEntry, RecipeCatalog


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
