"""A spec whose recipe is not resolved yet: what it asks for, and what is wrong with the rest of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from muster.contract.errors import Problem, SpecError, all_problems
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec.recipe_reference import RecipeReference
from muster.contract.spec.spec_reader import spec_problems, unstorable_problems
from muster.options.recipes.contract.places import PlaceError, in_s3
from muster.options.recipes.contract.recipe_request import RecipeRequest, read_request

_LOCAL = ("file", "base", "override_spec", "checkout")
_UNKNOWN_DIGEST = "0" * 64


def requested_recipe(document: Mapping[Any, Any]) -> RecipeRequest | None:
    """The recipe that a spec asks for; None where it asks for none, or where it is resolved already.

    Raises:
        SpecError: it is no request; with the problems of the rest of the spec.
    """
    found = document.get("recipe")
    if found is None or _is_reference(found):
        return None
    try:
        return read_request(found)
    except SpecError as error:
        raise with_problems_beside(error, document) from None


def reference_of(document: Mapping[Any, Any]) -> RecipeReference | None:
    """What an expanded spec says of its recipe; None for any other.

    Raises:
        SpecError: its reference is damaged; with all problems of the spec.
    """
    found = document.get("recipe")
    if not _is_reference(found):
        return None
    try:
        return RecipeReference.model_validate(found)
    except ValidationError:
        raise SpecError(spec_problems(document)) from None


def _is_reference(found: object) -> bool:
    return isinstance(found, Mapping) and "digest" in found


def problems_beside(document: Mapping[Any, Any]) -> list[Problem]:
    """Problems of a spec whose recipe is not known: of what a recipe could fill in, nothing is missing.

    Its model may not be known either.
    """
    rest = {name: value for name, value in document.items() if name != "model"}
    if rest.get("recipe") is not None and not _is_reference(rest["recipe"]):
        # Some recipe of a family that brings its program; with `sweep` one for each rank.
        replicas = document.get("replicas")
        count = replicas if isinstance(replicas, int) and 1 <= replicas <= REPLICAS_MAX else 1
        ranks = None if document.get("sweep") is None else [_UNKNOWN_DIGEST] * count
        rest["recipe"] = {"name": "recipe", "family": "llmft", "digest": _UNKNOWN_DIGEST, "ranks": ranks}
    return spec_problems(rest)


def with_problems_beside(error: SpecError, document: Mapping[Any, Any]) -> SpecError:
    """An error of the recipe or the model together with the problems of the rest of the spec."""
    named = {problem.field for problem in error.problems}
    return SpecError([*all_problems(error), *(one for one in problems_beside(document) if one.field not in named)])


def check_elsewhere(document: Mapping[Any, Any]) -> None:
    """Check a spec that is resolved elsewhere, where the files of this machine are not.

    Raises:
        SpecError: with every problem that is known without the recipe.
    """
    request = requested_recipe(document)
    if request is None:
        return
    problems = [*unstorable_problems({"recipe": document["recipe"]}), *_local_problems(request)]
    problems += problems_beside(document)
    if problems:
        raise SpecError(problems)


def _local_problems(request: RecipeRequest) -> list[Problem]:
    problems: list[Problem] = []
    for name in _LOCAL:
        place = getattr(request, name)
        try:
            if place is None or in_s3(place):
                continue
        except PlaceError as error:
            problems.append(error.problem(f"recipe.{name}"))
            continue
        remedy = "name an object in S3, or start the run with `muster launch`, which reads files"
        problems.append(Problem(f"recipe.{name}", f"{place!r}, a local file", remedy))
    return problems
