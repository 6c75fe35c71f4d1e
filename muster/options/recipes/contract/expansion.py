"""From a spec with a recipe to an ordinary spec: what the recipe's family fills in, and which recipe it was. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from muster.contract.document import digest
from muster.contract.errors import Problem, SpecError, StatedProblem, all_problems
from muster.contract.spec.open_spec import problems_beside
from muster.contract.spec.recipe_reference import Family, Origin, RecipeReference
from muster.contract.spec.spec_reader import spec_problems
from muster.options.recipes.contract.completion.family import FAMILIES, Draft, family_of, fill_family
from muster.options.recipes.contract.completion.placeholder_values import model_place, placeholder_values
from muster.options.recipes.contract.document_values import value_at
from muster.options.recipes.contract.rank_recipes import (
    hidden_problems,
    named_by_sweep,
    problems_of_ranks,
    sources_of_ranks,
    swept_values,
    together,
)
from muster.options.recipes.contract.recipe_request import RecipeRequest, read_request
from muster.options.recipes.contract.resolution import ReadRecipe, read_recipe
from muster.options.recipes.contract.resolved_recipe import RecipeSources, ResolvedRecipe

_OF_THE_USER = frozenset({Origin.INPUT, Origin.OVERRIDE, Origin.VALUE})


@dataclass(frozen=True)
class Expansion:
    """An ordinary spec, and the resolved recipe that it refers to; with `sweep` one for each rank."""

    document: dict[str, JsonValue]
    reference: RecipeReference
    recipes: tuple[ResolvedRecipe, ...]


def expansion(document: Mapping[Any, Any], sources: RecipeSources) -> Expansion:
    """The spec with what its recipe fills in; `recipe` is then a reference. And the resolved recipes.

    Raises:
        SpecError: with every problem of the recipe and of the rest of the spec.
    """
    request = read_request(document.get("recipe"))
    drafts: list[Draft] = []
    faults: list[list[Problem]] = []
    for own in sources_of_ranks(document, sources):
        try:
            drafts.append(_drafted(document, request, read_recipe(own)))
            faults.append([])
        except SpecError as error:
            faults.append(list(named_by_sweep(document, all_problems(error))))
    if any(faults):
        raise SpecError([*problems_of_ranks(faults), *problems_beside(document)])
    problems = [*hidden_problems(document, sources), *problems_of_ranks([one.problems for one in drafts])]
    spec = together([one.document for one in drafts], problems)
    reference = _reference(document, sources, drafts)
    spec["recipe"] = reference.model_dump(mode="json", exclude_none=True)
    # A program that is missing is reported already.
    stand_in = {"entrypoint": ["program"]} if any(one.field == "entrypoint" for one in problems) else {}
    found = spec_problems({**spec, **stand_in})
    if problems or found:
        raise SpecError([*problems, *found])
    return Expansion(spec, reference, tuple(one.resolved for one in drafts))


def _drafted(document: Mapping[Any, Any], request: RecipeRequest, read: ReadRecipe) -> Draft:
    """What the recipe of a rank makes of the spec; the same for all ranks where no value of the recipe is swept.

    Raises:
        SpecError: the recipe cannot be resolved, or nothing runs it.
    """
    family, resolved = _resolved(document, read)
    draft = Draft(family, dict(document), request, read, resolved)
    if request.kwargs is not None and document.get("trainer") is None and document.get("hook") is None:
        draft.state("recipe.kwargs", "set without trainer", "leave it out: the program reads the recipe itself")
    fill_family(draft)
    return draft


def _reference(document: Mapping[Any, Any], sources: RecipeSources, drafts: Sequence[Draft]) -> RecipeReference:
    digests = [one.resolved.digest for one in drafts]
    ranks = None
    if swept_values(document):
        ranks = digests if len(digests) > 1 else digests * int(document["replicas"])
    return RecipeReference(
        name=sources.name,
        family=drafts[0].family,
        digest=digests[0] if len(digests) == 1 else digest(digests),
        ranks=ranks,
        kwargs=drafts[0].request.kwargs,
    )


def _resolved(document: Mapping[Any, Any], read: ReadRecipe) -> tuple[Family, ResolvedRecipe]:
    """The recipe, resolved with what the rest of the spec says to it, and its family."""
    completed = replace(read, given=placeholder_values(document, read, None))
    resolved = completed.resolve()
    family = family_of(resolved.document, document)
    if family is None:
        raise SpecError([_unknown_family(resolved)])
    # What a spec says to a recipe depends on the family, which is known once the recipe is resolved.
    if (of_family := placeholder_values(document, read, family)) != completed.given:
        completed = replace(read, given=of_family)
        resolved = completed.resolve()
    counted, resolved = _with_count(document, family, completed, resolved)
    return family, _with_model(document, family, counted, resolved)


def _with_count(
    document: Mapping[Any, Any], family: Family, read: ReadRecipe, resolved: ResolvedRecipe
) -> tuple[ReadRecipe, ResolvedRecipe]:
    """The recipe with the number of instances of the spec, if both say one: the program must know how many there are.

    Raises:
        SpecError: the user has set another number in the recipe as well.
    """
    count, path = document.get("instance_count"), FAMILIES[family].count
    if not path or not isinstance(count, int) or isinstance(count, bool):
        return read, resolved
    found = value_at(resolved.document, *path)
    if not isinstance(found, int) or found == count:
        return read, resolved
    if resolved.origins.get(path) in _OF_THE_USER:
        allowed = f"{'.'.join(path)} of the recipe was set to {found}"
        raise SpecError([Problem("instance_count", str(count), "leave one of the two out", allowed)])
    counted = read.with_value(path, count)
    return counted, counted.resolve()


def _with_model(
    document: Mapping[Any, Any], family: Family, read: ReadRecipe, resolved: ResolvedRecipe
) -> ResolvedRecipe:
    """The recipe with the model that the spec names under `model`, where the recipe names another or refers to that.

    Raises:
        SpecError: the recipe has no place for a model.
    """
    paths = FAMILIES[family].models
    place = model_place(document, nova=family == "nova")
    if place is None or not paths:
        return resolved
    for path in paths:
        holder = value_at(resolved.document, *path[:-1])
        if isinstance(holder, dict) and path[-1] in holder:
            if holder[path[-1]] == place:
                return replace(resolved, origins={**resolved.origins, path: Origin.SPEC})
            return read.with_value(path, place).resolve()
    allowed = f"recipes of this family name their model at {' or '.join('.'.join(one) for one in paths)}"
    statement = "the recipe has no place for a model"
    raise SpecError([StatedProblem("model", statement, "leave it out, or choose another recipe", allowed)])


def _unknown_family(resolved: ResolvedRecipe) -> Problem:
    sections = ", ".join(list(resolved.document)[:16]) or "nothing"
    statement = f"it is of no family that Muster knows; its sections: {sections}"
    remedy = "name the program that reads it: trainer, or entrypoint with source_dir"
    allowed = (
        "known: run.model_type of amazon.nova with run.model_name_or_path, run.model_type llm_finetuning_aws or verl "
        "with training_config, evaluation, or trainer"
    )
    return StatedProblem("recipe", statement, remedy, allowed)
