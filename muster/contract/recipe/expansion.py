"""From a spec with a recipe to an ordinary spec: what the recipe's family fills in, and which recipe it was. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.recipe.families.detection import family_of
from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.evaluation import fill_evaluation
from muster.contract.recipe.families.facts import Openings, facts, model_place
from muster.contract.recipe.families.general import fill_general
from muster.contract.recipe.families.llmft import fill_llmft
from muster.contract.recipe.families.nova import fill_nova
from muster.contract.recipe.families.own_trainer import fill_trainer
from muster.contract.recipe.families.values import mapping_at, value_at
from muster.contract.recipe.recipe_reference import Family, RecipeReference
from muster.contract.recipe.recipe_request import RecipeRequest, read_request
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.resolution import resolve
from muster.contract.recipe.resolved_recipe import Origin, Path, ResolvedRecipe
from muster.contract.recipe.unresolved import problems_beside, reference_of, with_problems_beside
from muster.contract.spec.spec_reader import spec_problems

_FILL: Mapping[Family, Callable[[Draft], None]] = {
    "nova": fill_nova,
    "llmft": fill_llmft,
    "evaluation": fill_evaluation,
    "general": fill_general,
    "trainer": fill_trainer,
}
_COUNT: Mapping[Family, Path] = {
    "nova": ("run", "replicas"),
    "llmft": ("trainer", "num_nodes"),
    "evaluation": ("run", "replicas"),
    "general": ("trainer", "num_nodes"),
}
"""Where the recipes of a family have the number of instances of their job."""
_MODEL: Mapping[Family, tuple[tuple[str, ...], ...]] = {
    "nova": (("run", "model_name_or_path"),),
    "llmft": (
        ("training_config", "model_config", "model_name_or_path"),
        ("training_config", "actor_rollout_ref", "model", "path"),
    ),
    "evaluation": (("run", "model_name_or_path"),),
}
"""Where the recipes of a family name the model from which training starts; the first one that a recipe has."""
_OF_THE_USER = frozenset({Origin.INPUT, Origin.OVERRIDE, Origin.VALUE})


@dataclass(frozen=True)
class Expansion:
    """An ordinary spec, and the resolved recipe that it refers to; with `sweep` one for each rank."""

    document: dict[str, JsonValue]
    reference: RecipeReference
    recipes: tuple[ResolvedRecipe, ...]


def expand(document: Mapping[Any, Any], sources: RecipeSources) -> dict[str, JsonValue]:
    """The spec with what its recipe fills in; `recipe` is then a reference. An expanded spec expands to itself.

    Raises:
        SpecError: with every problem of the recipe and of the rest of the spec.
    """
    return expansion(document, sources).document


def expansion(document: Mapping[Any, Any], sources: RecipeSources) -> Expansion:
    """As `expand`, with the resolved recipes.

    Raises:
        SpecError: as `expand`.
    """
    request = _request(document)
    openings = Openings.of(sources)
    try:
        family, resolved = _resolved(document, openings)
    except SpecError as error:
        raise with_problems_beside(error, document) from None
    if family is None:
        raise SpecError([_unknown_family(resolved), *problems_beside(document)])
    draft = Draft(dict(document), request, openings, resolved)
    if request.kwargs is not None and document.get("trainer") is None:
        draft.state("recipe.kwargs", "set without trainer", "leave it out: the program reads the recipe itself")
    _FILL[family](draft)
    reference = RecipeReference(
        name=sources.name, family=family, digest=resolved.digest, sources=sources.digest, kwargs=request.kwargs
    )
    draft.document["recipe"] = reference.model_dump(mode="json", exclude_none=True)
    found = spec_problems(_with_stand_ins(draft.document, (one.field for one in draft.problems)))
    if draft.problems or found:
        raise SpecError([*draft.problems, *found])
    return Expansion(draft.document, reference, (resolved,))


def _request(document: Mapping[Any, Any]) -> RecipeRequest:
    reference = reference_of(document)
    return read_request(document.get("recipe")) if reference is None else RecipeRequest(kwargs=reference.kwargs)


def _resolved(document: Mapping[Any, Any], openings: Openings) -> tuple[Family | None, ResolvedRecipe]:
    """The recipe, resolved with what the rest of the spec says to it, and its family."""
    sources = openings.sources
    given = facts(document, openings, None)
    completed = sources.model_copy(update={"inputs": {**given, **sources.inputs}})
    resolved = resolve(completed)
    family = family_of(resolved.document, document)
    # What a spec says to a recipe depends on the family, which is known once the recipe is resolved.
    if (of_family := facts(document, openings, family)) != given:
        completed = sources.model_copy(update={"inputs": {**of_family, **sources.inputs}})
        resolved = resolve(completed)
    return family, _with_model(document, family, _with_count(document, family, completed, resolved))


def _with_count(
    document: Mapping[Any, Any], family: Family | None, sources: RecipeSources, resolved: ResolvedRecipe
) -> ResolvedRecipe:
    """The recipe with the number of instances of the spec, if both say one: the program must know how many there are.

    Raises:
        SpecError: the user has set another number in the recipe as well.
    """
    count, path = document.get("instance_count"), None if family is None else _COUNT.get(family)
    if path is None or not isinstance(count, int) or isinstance(count, bool):
        return resolved
    found = value_at(resolved.document, *map(str, path))
    if not isinstance(found, int) or found == count:
        return resolved
    name = ".".join(map(str, path))
    if resolved.origins.get(path) in _OF_THE_USER:
        allowed = f"{name} of the recipe was set to {found}"
        raise SpecError([Problem("instance_count", str(count), "leave one of the two out", allowed)])
    return resolve(sources.model_copy(update={"overrides": {**sources.overrides, name: count}}))


def _with_model(document: Mapping[Any, Any], family: Family | None, resolved: ResolvedRecipe) -> ResolvedRecipe:
    """The recipe with the model that the spec names under `model`, where the recipe names another.

    Raises:
        SpecError: the recipe has no place for a model.
    """
    paths = () if family is None else _MODEL.get(family, ())
    place = model_place(document, nova=family == "nova")
    if place is None or not paths:
        return resolved
    path = next((one for one in paths if _names_model(resolved.document, one)), None)
    if path is None:
        allowed = f"recipes of this family name their model at {' or '.join('.'.join(one) for one in paths)}"
        statement = "the recipe has no place for a model"
        raise SpecError([StatedProblem("model", statement, "leave it out, or choose another recipe", allowed)])
    return replace(
        resolved,
        document=_with_value(resolved.document, path, place),
        origins={**resolved.origins, path: Origin.VALUE},
    )


def _names_model(recipe: Mapping[str, JsonValue], path: tuple[str, ...]) -> bool:
    return path[-1] in mapping_at(recipe, *path[:-1])


def _with_value(recipe: dict[str, JsonValue], path: tuple[str, ...], value: JsonValue) -> dict[str, JsonValue]:
    """A copy of the mapping, with another value at a path that it has."""
    name, *rest = path
    below = recipe[name]
    return {**recipe, name: _with_value(below, tuple(rest), value) if rest and isinstance(below, dict) else value}


def _unknown_family(resolved: ResolvedRecipe) -> Problem:
    sections = ", ".join(list(resolved.document)[:16]) or "nothing"
    statement = f"it is of no family that Muster knows; it has {sections}"
    remedy = "name the program that reads it: trainer, or entrypoint with source_dir"
    allowed = (
        "known: run.model_type of amazon.nova with run.model_name_or_path, run.model_type llm_finetuning_aws or verl "
        "with training_config, evaluation, or trainer"
    )
    return StatedProblem("recipe", statement, remedy, allowed)


def _with_stand_ins(document: Mapping[Any, Any], faulty: Iterable[str]) -> dict[str, JsonValue]:
    """The spec without the faults that are reported already."""
    return {**document, **({"entrypoint": ["program"]} if "entrypoint" in faulty else {})}


def _without_recipe(document: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in document.items() if name != "recipe"}


def expanded_again(given: Mapping[Any, Any], found: Mapping[Any, Any], sources: RecipeSources) -> Expansion:
    """The expansion of an expanded spec, which must be what was `given`: so nothing was changed since.

    Args:
        given: the spec as it was expanded before.
        found: the same, with the model that it names looked up again.
        sources: those of its recipe.

    Raises:
        SpecError: the recipe or the spec has another form now.
    """
    again = expansion(found, sources)
    if reference_of(given) != again.reference or _without_recipe(given) != _without_recipe(again.document):
        statement = f"{again.reference.name} resolves to another recipe or another spec than when the run was requested"
        remedy = "resolve it again: launch the run again from its spec, with this version of Muster"
        raise SpecError([StatedProblem("recipe", statement, remedy)])
    return again
