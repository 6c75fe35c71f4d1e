"""Recipes, resolved and compared in a program.

from muster.recipes import Recipe

print(Recipe.load("recipe.yaml").resolve({"training_config.lr": 1e-4}).to_yaml())
"""

from __future__ import annotations

from muster.options.recipes.client.recipe import Recipe, Resolution
from muster.options.recipes.client.recipe_values import RecipeDifference, RecipeTemplate, RecipeValue
from muster.options.recipes.contract.override_spec import SpecifiedValue

__all__ = ["Recipe", "RecipeDifference", "RecipeTemplate", "RecipeValue", "Resolution", "SpecifiedValue"]
