"""A spec that a recipe completes: what the spec leaves out is filled in, and all problems are collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.errors import Problem, StatedProblem
from muster.contract.recipe.families.facts import Openings
from muster.contract.recipe.recipe_request import RecipeRequest
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.resolved_recipe import ResolvedRecipe

RECIPE_MOUNT = "/opt/ml/input/data/recipe"
"""Where a container finds the folder with its `recipe.yaml`."""


@dataclass
class Draft:
    """The document of a spec, its recipe, and what the family finds wrong.

    A value that the spec sets comes first: a family adds to it, and replaces nothing.
    """

    document: dict[str, JsonValue]
    request: RecipeRequest
    openings: Openings
    resolved: ResolvedRecipe
    problems: list[Problem] = field(default_factory=list)

    @property
    def sources(self) -> RecipeSources:
        """What the recipe was resolved from."""
        return self.openings.sources

    @property
    def recipe(self) -> dict[str, JsonValue]:
        """The resolved recipe."""
        return self.resolved.document

    def fill(self, name: str, value: JsonValue) -> None:
        """Set a field that the spec leaves out."""
        if self.document.get(name) is None:
            self.document[name] = value

    def fill_part(self, name: str, values: Mapping[str, JsonValue]) -> None:
        """Set those entries of a mapping that the spec leaves out."""
        found = self.document.get(name)
        if values and (found is None or isinstance(found, dict)):
            self.document[name] = {**values, **(found or {})}

    def add_channel(self, channel: dict[str, JsonValue]) -> None:
        """Add a channel."""
        found = self.document.get("input_data_config")
        if found is None or isinstance(found, list):
            self.document["input_data_config"] = [*(found or []), channel]

    def drop_channel(self, name: str) -> None:
        """Leave a channel out."""
        found = self.document.get("input_data_config")
        if isinstance(found, list):
            self.document["input_data_config"] = [
                one for one in found if not isinstance(one, dict) or one.get("channel_name") != name
            ]

    def replace_source(self, name: str, source: dict[str, JsonValue]) -> None:
        """Give the channel of this name another source in S3."""
        found = self.document.get("input_data_config")
        if isinstance(found, list):
            self.document["input_data_config"] = [
                {**one, "data_source": {"s3_data_source": source}}
                if isinstance(one, dict) and one.get("channel_name") == name
                else one
                for one in found
            ]

    def state(self, name: str, statement: str, remedy: str, allowed: str = "") -> None:
        """Add a problem that is not a wrong value."""
        self.problems.append(StatedProblem(name, statement, remedy, allowed))

    def refuse(self, name: str, found: JsonValue, remedy: str, allowed: str = "") -> None:
        """Add a problem with a value."""
        self.problems.append(Problem(name, repr(found), remedy, allowed))
