"""Which family a resolved recipe belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from muster.contract.recipe.families.values import mapping_at, text_at, value_at
from muster.contract.recipe.recipe_reference import Family

_LLMFT = frozenset({"llm_finetuning_aws", "verl"})
_EVALUATIONS = ("evaluation", "llm_as_judge")


def family_of(recipe: Mapping[str, JsonValue], document: Mapping[str, JsonValue]) -> Family | None:
    """What runs `recipe` for the spec `document`; None where nothing does.

    A program of the user's own that Muster calls comes first, whatever the recipe says about others.
    """
    if document.get("trainer") is not None or document.get("hook") is not None:
        return "trainer"
    if _is_nova(recipe):
        return "nova"
    if text_at(recipe, "run", "model_type").lower() in _LLMFT and value_at(recipe, "training_config"):
        return "llmft"
    if "trainer" not in recipe and not value_at(recipe, "training_config") and any(map(recipe.get, _EVALUATIONS)):
        return "evaluation"
    # A program of the user's own may read a recipe of any form.
    own = document.get("entrypoint") is not None or document.get("algorithm_name") is not None
    return "general" if own or "trainer" in recipe else None


def _is_nova(recipe: Mapping[str, JsonValue]) -> bool:
    run = mapping_at(recipe, "run")
    named = "amazon.nova" in text_at(run, "model_type").lower() and "model_name_or_path" in run
    return named or value_at(recipe, "training_config", "distillation_data") is not None
