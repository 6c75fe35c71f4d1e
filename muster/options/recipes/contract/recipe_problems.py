"""The problems of a recipe, in the words of its paths: `recipe.training_config.lr (overrides): found …`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from muster.contract.errors import Problem, RecipeError, StatedProblem
from muster.contract.spec import private_values
from muster.contract.spec.private_values import PROGRAM_FIELDS, kind_of, may_be_secret
from muster.contract.spec.recipe_reference import Origin
from muster.contract.text import shortened
from muster.options.recipes.contract.resolved_recipe import Path

_PART_SHOWN = 64
# Finding the nearest of thousands of names takes a millisecond each.
_NEAREST_MAX, _KNOWN_MAX = 16, 1_024

_SECRET_VALUE = re.compile(r"(hf_|sk-|ghp_|github_pat_|xox[a-z]-|AKIA|ASIA|-----BEGIN)")
_PRIVATE = PROGRAM_FIELDS - {"kwargs"} | {"env", "env_vars"}


def path_name(path: Sequence[str | int]) -> str:
    """A path as people write it: `a.b.0`. A key with a dot in it is in quotes."""
    parts = [shortened(str(part), _PART_SHOWN) for part in path]
    return ".".join(f"'{part}'" if "." in part else part for part in parts)


def field(path: Sequence[str | int], origin: Origin | None) -> str:
    """The name of a value in a problem, with the source that it came from."""
    name = f"recipe.{path_name(path)}" if path else "recipe"
    return name if origin is None else f"{name} ({origin.value})"


def shown(path: Sequence[str | int], value: object) -> str:
    """A value as a problem shows it: on one line, cut where it is long, and not at all where it may be secret."""
    if any(isinstance(part, str) and (part in _PRIVATE or may_be_secret(part)) for part in path):
        return f"{kind_of(value)} (not shown)"
    if isinstance(value, str) and _SECRET_VALUE.search(value):
        return "text (not shown)"
    return "null" if value is None else private_values.shown(value)


class Problems:
    """What is wrong with a recipe, collected until all of it is known."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._searched = 0

    def raise_found(self) -> None:
        """Raise all of them as a RecipeError, if there are any."""
        if self.found:
            raise RecipeError(self.found)

    def state(self, name: str, statement: str, remedy: str) -> None:
        """Add a mistake that is not a wrong value."""
        self.found.append(StatedProblem(name, statement, remedy))

    def wrong(self, path: Path, origin: Origin | None, value: JsonValue, remedy: str, allowed: str = "") -> None:
        """Add a wrong value."""
        found = shown(path, value)
        self.found.append(Problem(field(path, origin), found, remedy, f"allowed: {allowed}" if allowed else ""))

    @property
    def may_search(self) -> bool:
        """Whether the nearest of the known names is still looked for: only for the first problems."""
        return self._searched < _NEAREST_MAX

    def nearest(self, name: str, known: Iterable[str]) -> str | None:
        """The known name that a misspelled one most likely stands for; of the first problems only."""
        if not self.may_search:
            return None
        self._searched += 1
        names = list(dict.fromkeys(known))[:_KNOWN_MAX]
        near = difflib.get_close_matches(name[:_PART_SHOWN], names, n=1, cutoff=0.6)
        return near[0] if near else None
