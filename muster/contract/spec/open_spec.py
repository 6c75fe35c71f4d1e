"""A spec that names a recipe or a model which is found before the spec is planned: what is wrong with the rest of it.

What people write under `recipe`, and how it is resolved, is an option's: without one such a spec is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from muster.contract.document import Document
from muster.contract.errors import Problem, SpecError, StatedProblem, all_problems
from muster.contract.names import REPLICAS_MAX
from muster.contract.spec.spec_reader import spec_problems

_UNKNOWN_DIGEST = "0" * 64


@dataclass(frozen=True)
class OpenRecipes:
    """What is known of a recipe before it is read: an option's `OFFER` for the seam `contract.open_recipes`."""

    form: Callable[[], type[Document]]
    """The model of what people write under `recipe`."""
    check: Callable[[Mapping[Any, Any]], None]
    """Refuses a spec that cannot be resolved where the files of this machine are not, with a SpecError of all problems
    that are known without the recipe."""


def is_reference(recipe: object) -> bool:
    """Whether the `recipe` of a spec is one that is resolved already."""
    return isinstance(recipe, Mapping) and "digest" in recipe


def problems_beside(document: Mapping[Any, Any]) -> list[Problem]:
    """Problems of a spec whose recipe is not known: of what a recipe could fill in, nothing is missing.

    Its model may not be known either.
    """
    rest = {name: value for name, value in document.items() if name != "model"}
    if rest.get("recipe") is not None and not is_reference(rest["recipe"]):
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


def refuse_unread(field: str, document: Mapping[Any, Any]) -> NoReturn:
    """Refuse a field that only an option can resolve, where that option is missing.

    Raises:
        SpecError: always, with the problems of the rest of the spec.
    """
    remedy = "leave it out, or install Muster with its option recipes"
    problem = StatedProblem(field, "this installation of Muster reads neither recipes nor hubs", remedy)
    raise with_problems_beside(SpecError([problem]), document)
