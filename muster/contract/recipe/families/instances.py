"""The instances of a recipe's job: their types and their number, against what the recipe allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.values import mapping_at, value_at

_TYPE_NAMES, _COUNT_NAMES = ("instance_type", "instance_types"), ("replicas", "instance_count", "num_nodes")
_ACCELERATED = ("g", "p", "trn")
"""How the families of the instance types begin that have GPUs or Trainium."""


def check_types(draft: Draft, *, accelerated: bool = False) -> None:
    """Every type that the spec names must be one that the recipe allows; with `accelerated`, of GPUs or Trainium."""
    allowed = _allowed_types(draft)
    named = list(instance_types(draft.document))
    kinds = "an instance type with GPUs or Trainium" if accelerated else "an instance type"
    if not any("." not in field for field, _ in named):
        choices = f"one of {', '.join(allowed)}" if allowed else kinds
        draft.state("instance_type", "missing", "it is required with this recipe", f"allowed: {choices}")
    for field, name in named:
        if allowed and name not in allowed:
            remedy = "choose one of these, or set instance_types in recipe.overrides"
            draft.refuse(field, name, remedy, f"the recipe allows {', '.join(allowed)}")
        elif accelerated and not name.removeprefix("ml.").startswith(_ACCELERATED):
            draft.refuse(field, name, "choose a type of the families g, p or trn", f"the recipe needs {kinds}")


def check_count(draft: Draft, *path: str) -> None:
    """Fill the number of instances in from the recipe's value at `path`, and hold it against what the recipe allows."""
    count = value_at(draft.recipe, *path)
    if isinstance(count, int) and not isinstance(count, bool):
        draft.fill("instance_count", count)
    found = draft.document.get("instance_count")
    limits = next((one for name in _COUNT_NAMES if (one := draft.openings.parameters.get(name)) is not None), None)
    if limits is not None and found is not None and (mistake := limits.mistake(found)) is not None:
        allowed, remedy = mistake
        draft.refuse("instance_count", found, remedy, f"the recipe allows {allowed} instances")


def instance_types(document: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """The instance types in a spec that is not checked yet, each with its field."""
    for prefix, part in _parts(document):
        named = part.get("instance_type")
        others, preferred = part.get("fallback_instance_types"), part.get("instance_preferences")
        items: list[tuple[str, JsonValue]] = [("instance_type", named)]
        if isinstance(others, list):
            items += [(f"fallback_instance_types[{index}]", one) for index, one in enumerate(others)]
        if isinstance(preferred, list):
            types = [value_at(one, "instance_type") for one in preferred]
            items += [(f"instance_preferences[{index}]", one) for index, one in enumerate(types)]
        yield from ((f"{prefix}{field}", one) for field, one in items if isinstance(one, str))


def _parts(document: Mapping[str, JsonValue]) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    yield "", document
    for ranks, part in mapping_at(document, "overrides").items():
        if isinstance(part, Mapping):
            yield f"overrides.{ranks}.", part


def _allowed_types(draft: Draft) -> list[str]:
    """The types in the recipe itself, or else in its override specification."""
    named = draft.recipe.get("instance_types")
    parameters = draft.openings.parameters
    chosen = [parameters[name].choices or () for name in _TYPE_NAMES if name in parameters]
    found = next((one for one in (named, *chosen) if isinstance(one, list | tuple) and one), ())
    # The hub's documents leave the prefix out here and there.
    texts = [one for one in found if isinstance(one, str) and one]
    return [one if one.startswith("ml.") else f"ml.{one}" for one in texts]
