"""What a dry run says about the recipe of a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from muster.client.recipes.recipe_values import RecipeSource, recipe_sources
from muster.contract.document import Document
from muster.contract.recipe.recipe_reference import Family

if TYPE_CHECKING:
    from muster.client.recipes.expanded_spec import ExpandedSpec


class PlannedRecipe(Document):
    """The recipe of a spec, resolved."""

    name: str = Field(description="what people call the recipe")
    family: Family = Field(description="what runs it")
    digest: str = Field(description="of its values, and with `sweep` of those of all ranks")
    sources: tuple[RecipeSource, ...] = Field(
        description="from the weakest to the strongest; with `sweep` those of rank 0"
    )


def planned_recipe(expanded: ExpandedSpec) -> PlannedRecipe | None:
    """The recipe that a spec was expanded from, if any."""
    reference = expanded.spec.recipe
    if reference is None or expanded.sources is None:
        return None
    return PlannedRecipe(
        name=reference.name,
        family=reference.family,
        digest=reference.digest,
        sources=tuple(recipe_sources(expanded.recipes[0], expanded.sources)),
    )
