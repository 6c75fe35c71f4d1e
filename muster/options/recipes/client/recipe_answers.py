"""What the commands of `muster recipe` print with `--json`, where it is not a document of the SDK."""

from __future__ import annotations

from pydantic import Field, JsonValue

from muster.client.cli.json_answers import ErrorDetail
from muster.client.launch.planned_recipe import RecipeSource
from muster.contract.document import Document
from muster.options.recipes.client.recipe_values import RecipeDifference, RecipeValue


class RecipeResolved(Document):
    """A recipe without placeholders and interpolations."""

    name: str = Field(description="what people call the recipe")
    digest: str = Field(description="SHA-256 of the values, by which the stack's bucket has the recipe")
    document: dict[str, JsonValue] = Field(description="the values")
    values: tuple[RecipeValue, ...] = Field(description="every value with its source, in the recipe's order")
    sources: tuple[RecipeSource, ...] = Field(description="from the weakest to the strongest")


class RecipesCompared(Document):
    """Two recipes."""

    a: str = Field(description="the digest of the first one")
    b: str = Field(description="the digest of the second one")
    differences: tuple[RecipeDifference, ...] = Field(description="nothing when they are the same")


class RecipeChecked(Document):
    """Whether a recipe can be resolved."""

    source: str
    digest: str | None = Field(description="of what it is resolved to; null when it cannot be")
    values: int = Field(default=0, description="how many values it has")
    error: ErrorDetail | None = Field(description="null when it can be resolved")


class RecipesChecked(Document):
    """Whether recipes can be resolved."""

    recipes: tuple[RecipeChecked, ...] = Field(description="in the order of the command line")
