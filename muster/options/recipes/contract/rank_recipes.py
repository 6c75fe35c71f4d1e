"""The recipes of a sweep: one for each rank, and one spec of what they fill in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.names import APART_MAX
from muster.contract.spec.recipe_reference import Origin
from muster.contract.spec.sweep_values import FIELDS, of_spec
from muster.options.recipes.contract.resolved_recipe import RecipeSources

_Values = Mapping[str, JsonValue]
_Place = tuple[str, ...]

SWEPT_CHARACTERS_MAX = 16_000_000
"""Of the texts of a recipe, over all ranks: what the function that plans a run can resolve in its time."""


def swept_values(document: Mapping[Any, Any]) -> dict[str, list[JsonValue]]:
    """The values of a spec's sweep by name, without those of another number than there are ranks.

    What is left out is a problem of the spec, which is reported with all others.
    """
    sweep, replicas = document.get("sweep"), document.get("replicas")
    if not isinstance(sweep, Mapping) or not isinstance(replicas, int) or not 1 <= replicas <= APART_MAX:
        return {}
    return {
        name: values
        for name, values in sweep.items()
        if isinstance(name, str) and isinstance(values, list) and len(values) == replicas
    }


def sources_of_ranks(document: Mapping[Any, Any], sources: RecipeSources) -> list[RecipeSources]:
    """The sources of the recipe of each rank; those of the run where no value of the recipe is swept.

    Raises:
        SpecError: so many ranks cannot have recipes of this size.
    """
    swept = {name: values for name, values in swept_values(document).items() if not of_spec(name)}
    if not swept:
        return [sources]
    _check_size(sources, document["replicas"])
    own = [{name: values[rank] for name, values in swept.items()} for rank in range(document["replicas"])]
    return [sources.model_copy(update={"overrides": {**sources.overrides, **values}}) for values in own]


def _check_size(sources: RecipeSources, ranks: int) -> None:
    texts = (sources.base, sources.override_spec, sources.recipe)
    size = sum(len(one.text) for one in texts if one is not None)
    if size * ranks > SWEPT_CHARACTERS_MAX:
        found = f"{ranks} ranks of a recipe of {size:,} characters"
        allowed = f"at most {SWEPT_CHARACTERS_MAX:,} characters over all ranks"
        raise SpecError([Problem("sweep", found, "sweep fewer ranks, or a shorter recipe", allowed)])


def hidden_problems(document: Mapping[Any, Any], sources: RecipeSources) -> Iterator[Problem]:
    """Swept values of the recipe that a value set directly hides."""
    for name in swept_values(document):
        if name in sources.values:
            remedy = "leave it out of one of the two"
            yield StatedProblem(f"sweep.{name}", "it is set in recipe.values as well, which come first", remedy)


def named_by_sweep(document: Mapping[Any, Any], problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems. The field of one that concerns a swept value is its name in `sweep`."""
    swept = {f"recipe.{name} ({Origin.OVERRIDE})": f"sweep.{name}" for name in swept_values(document)}
    return (replace(problem, field=swept.get(problem.field, problem.field)) for problem in problems)


def problems_of_ranks(found: Sequence[Sequence[Problem]]) -> Iterator[Problem]:
    """The problems of all ranks: once where all have it, else with the rank."""
    texts = [{str(problem) for problem in problems} for problems in found]
    shared = set.intersection(*texts)
    for rank, problems in enumerate(found):
        for problem in problems:
            if str(problem) not in shared:
                yield replace(problem, field=f"rank {rank}: {problem.field}")
            elif rank == 0:
                yield problem


def together(documents: Sequence[_Values], problems: list[Problem]) -> dict[str, JsonValue]:
    """One spec of those of all ranks: what differs in the fields that can be swept joins the sweep."""
    first, *others = documents
    found = dict(first)
    if not others:
        return found
    derived: dict[str, JsonValue] = {}
    for name in dict.fromkeys(key for document in documents for key in document):
        values = [document.get(name) for document in documents]
        if all(value == values[0] for value in values):
            continue
        if name in FIELDS:
            derived |= _differences(name, values, problems)
        else:
            statement = f"its values give the ranks a different {name}, which all ranks share"
            problems.append(StatedProblem("sweep", statement, "leave the value of the recipe out that changes it"))
    sweep = first.get("sweep")
    users = sweep if isinstance(sweep, dict) else {}
    # What the user sweeps comes first, as what the spec sets does.
    found["sweep"] = {**users, **{name: values for name, values in derived.items() if not _is_within(name, users)}}
    return found


def _differences(field: str, values: Sequence[JsonValue], problems: list[Problem]) -> Iterator[tuple[str, JsonValue]]:
    """What differs in a field, as entries of the sweep."""
    for path, leaves in _leaves((field,), values):
        if len(path) == 1:
            statement = f"its values give the ranks different names in {field}"
            problems.append(StatedProblem("sweep", statement, "leave the value of the recipe out that adds them"))
        else:
            yield ".".join(path), list(leaves)


def _leaves(path: _Place, values: Sequence[JsonValue]) -> Iterator[tuple[_Place, Sequence[JsonValue]]]:
    """Where values differ: below mappings that have the same names, which can be written as a path."""
    deep = path[0] == "kwargs"
    if all(value == values[0] for value in values):
        return
    mappings = [value for value in values if isinstance(value, dict)]
    names = [list(value) for value in mappings]
    same = len(mappings) == len(values) and all(set(one) == set(names[0]) for one in names)
    if (len(path) > 1 and not deep) or not same or any("." in name or not name for name in names[0] if deep):
        yield path, values
        return
    for name in names[0]:
        yield from _leaves((*path, name), [value[name] for value in mappings])


def _is_within(name: str, swept: Mapping[str, object]) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in swept if of_spec(other))
