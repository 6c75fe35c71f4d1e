"""From a spec with a recipe to an ordinary spec: what the recipe's family fills in, and which recipe it was. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.recipe.families.detection import family_of
from muster.contract.recipe.families.draft import Draft
from muster.contract.recipe.families.evaluation import fill_evaluation
from muster.contract.recipe.families.facts import facts
from muster.contract.recipe.families.general import fill_general
from muster.contract.recipe.families.llmft import fill_llmft
from muster.contract.recipe.families.nova import fill_nova
from muster.contract.recipe.families.own_trainer import fill_trainer
from muster.contract.recipe.families.values import value_at
from muster.contract.recipe.recipe_reference import Family, RecipeReference
from muster.contract.recipe.recipe_request import RecipeRequest, read_request
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.resolution import resolve
from muster.contract.recipe.resolved_recipe import Origin, Path, ResolvedRecipe
from muster.contract.recipe.unresolved import (
    problems_beside,
    problems_of_spec,
    reference_of,
    with_problems_beside,
)

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
    try:
        family, resolved = _resolved(document, sources)
    except SpecError as error:
        raise with_problems_beside(error, document) from None
    if family is None:
        raise SpecError([_unknown_family(resolved), *problems_beside(document)])
    draft = Draft(dict(document), request, sources, resolved)
    if request.kwargs is not None and document.get("trainer") is None:
        draft.state("recipe.kwargs", "set without trainer", "leave it out: the program reads the recipe itself")
    _FILL[family](draft)
    reference = RecipeReference(
        name=sources.name, family=family, digest=resolved.digest, sources=sources.digest, kwargs=request.kwargs
    )
    draft.document["recipe"] = reference.model_dump(mode="json", exclude_none=True)
    found = problems_of_spec(_with_stand_ins(draft.document, (one.field for one in draft.problems)))
    if draft.problems or found:
        raise SpecError([*draft.problems, *found])
    return Expansion(draft.document, reference, (resolved,))


def _request(document: Mapping[Any, Any]) -> RecipeRequest:
    reference = reference_of(document)
    return read_request(document.get("recipe")) if reference is None else RecipeRequest(kwargs=reference.kwargs)


def _resolved(document: Mapping[Any, Any], sources: RecipeSources) -> tuple[Family | None, ResolvedRecipe]:
    """The recipe, resolved with what the rest of the spec says to it, and its family."""
    given = facts(document, sources, None)
    completed = sources.model_copy(update={"inputs": {**given, **sources.inputs}})
    resolved = resolve(completed)
    family = family_of(resolved.document, document)
    # What a spec says to a recipe depends on the family, which is known once the recipe is resolved.
    if (of_family := facts(document, sources, family)) != given:
        completed = sources.model_copy(update={"inputs": {**of_family, **sources.inputs}})
        resolved = resolve(completed)
    return family, _with_count(document, family, completed, resolved)


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


def expanded_again(document: Mapping[Any, Any], sources: RecipeSources) -> Expansion:
    """The expansion of an expanded spec, which must be what it is already: so nothing was changed since.

    Raises:
        SpecError: the recipe or the spec has another form now.
    """
    again = expansion(document, sources)
    if reference_of(document) != again.reference or _without_recipe(document) != _without_recipe(again.document):
        statement = f"{again.reference.name} resolves to another recipe or another spec than when the run was requested"
        remedy = "resolve it again: launch the run again from its spec, with this version of Muster"
        raise SpecError([StatedProblem("recipe", statement, remedy)])
    return again
