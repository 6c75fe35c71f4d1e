"""A spec that a recipe completes: what the spec leaves out is filled in, and all problems are collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.errors import Problem, StatedProblem
from muster.options.recipes.contract.completion.placeholder_values import OpenPlaceholders
from muster.options.recipes.contract.recipe_request import RecipeRequest
from muster.options.recipes.contract.recipe_sources import RecipeSources
from muster.options.recipes.contract.resolved_recipe import ResolvedRecipe


@dataclass
class Draft:
    """The document of a spec, its recipe, and what the family finds wrong.

    A value that the spec sets comes first: a family adds to it, and replaces nothing.
    """

    document: dict[str, JsonValue]
    request: RecipeRequest
    left_open: OpenPlaceholders
    resolved: ResolvedRecipe
    problems: list[Problem] = field(default_factory=list)

    @property
    def sources(self) -> RecipeSources:
        """What the recipe was resolved from."""
        return self.left_open.sources

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

    def change_channels(self, change: Callable[[list[JsonValue]], list[JsonValue]]) -> None:
        """Replace the channels, unless the spec has something else in their place."""
        found = self.document.get("input_data_config")
        changed = change(list(found)) if isinstance(found, list) else change([]) if found is None else []
        if changed or isinstance(found, list):
            self.document["input_data_config"] = changed

    def state(self, name: str, statement: str, remedy: str, allowed: str = "") -> None:
        """Add a problem that is not a wrong value."""
        self.problems.append(StatedProblem(name, statement, remedy, allowed))

    def refuse(self, name: str, found: JsonValue, remedy: str, allowed: str = "") -> None:
        """Add a problem with a value."""
        self.problems.append(Problem(name, repr(found), remedy, allowed))
