"""Recipes of open models (`run.model_type` llm_finetuning_aws or verl): fine-tuning in an image of AWS."""

from __future__ import annotations

from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.instances import check_count, check_types
from muster.contract.recipe.families.own_image import fill_mlflow, fill_own_image, fill_weights, refuse_recipe_values


def fill_llmft(draft: Draft) -> None:
    """The fields of a job that fine-tunes an open model."""
    refuse_recipe_values(draft)
    fill_own_image(draft)
    fill_weights(draft)
    fill_mlflow(draft)
    check_types(draft)
    check_count(draft, "trainer", "num_nodes")
