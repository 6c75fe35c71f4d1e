"""A recipe for a program that Muster calls: a trainer, whose arguments come from the recipe, or a hooked program."""

from __future__ import annotations

from pydantic import JsonValue

from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.own_image import fill_weights
from muster.contract.recipe.families.values import value_at


def fill_trainer(draft: Draft) -> None:
    """The trainer's keyword arguments, from the recipe's section; those of the spec come first."""
    fill_weights(draft)
    section = draft.request.kwargs
    if section is None:
        return
    found = value_at(draft.recipe, *section.split("."))
    if not isinstance(found, dict):
        sections = [name for name, item in draft.recipe.items() if isinstance(item, dict)]
        allowed = f"sections: {', '.join(sections)}" if sections else "the recipe has no section"
        draft.refuse("recipe.kwargs", section, "name a section of the recipe, such as training_config", allowed)
        return
    own = draft.document.get("kwargs")
    if own is None or isinstance(own, dict):
        draft.document["kwargs"] = _merged(found, own or {})


def _merged(below: dict[str, JsonValue], above: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Mappings merged at every level; values of `above` come first."""
    merged = dict(below)
    for name, value in above.items():
        lower = merged.get(name)
        merged[name] = _merged(lower, value) if isinstance(lower, dict) and isinstance(value, dict) else value
    return merged
