"""Recipes that evaluate open models, by benchmarks or by a judge."""

from __future__ import annotations

from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.instances import check_count, check_types
from muster.contract.recipe.families.own_image import fill_mlflow, fill_own_image, fill_weights, refuse_recipe_values


def fill_evaluation(draft: Draft) -> None:
    """The fields of a job that evaluates an open model."""
    refuse_recipe_values(draft)
    fill_own_image(draft)
    fill_weights(draft)
    fill_mlflow(draft)
    check_types(draft)
    check_count(draft, "run", "replicas")
