"""A recipe in Python: loaded once, resolved as often as its values change."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Self

from pydantic import JsonValue

from muster.client.client_errors import OptionError
from muster.client.launch.planned_recipe import RecipeSource
from muster.contract.errors import SpecError
from muster.options.recipes.client.recipe_places import Fields, NamedRecipe, named_recipe, with_model, with_override
from muster.options.recipes.client.recipe_values import (
    RecipeDifference,
    RecipeTemplate,
    RecipeValue,
    path_text,
    recipe_differences,
    recipe_sources,
    recipe_values,
    template_of,
)
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources, ResolvedRecipe

if TYPE_CHECKING:
    import boto3

    from muster.client.aws.light_session import AnySession


class Recipe:
    """A recipe as its sources say it. They are read once, by `Recipe.load`; `resolve` calls nothing.

    Two are equal whose sources are the same.
    """

    def __init__(self, named: NamedRecipe, sources: RecipeSources) -> None:
        self._named, self._sources = named, sources

    @classmethod
    def load(
        cls,
        source: str | PathLike[str] | Mapping[str, object],
        *,
        session: boto3.Session | None = None,
        profile: str | None = None,
        region: str | None = None,
    ) -> Self:
        """The recipe at `source`: a file, an s3:// URI, a spec's file that names a recipe, or a spec's `recipe`.

        The last one is a mapping: `{"hub": {"model": ..., "technique": "SFT"}, "overrides": {...}}`. AWS is asked for
        what is in S3 or in a hub, with the session, or with a profile and a region as `Muster` chooses them. A spec's
        `model` is found as for `muster plan`: that of an earlier run stays open.

        Raises:
            SpecError: the recipe has problems, all of which are listed.
            InputError: the file cannot be read.
            ClientError: AWS cannot be reached or refuses.
        """
        from muster.options.recipes.client.client_reader import read_sources  # noqa: PLC0415

        named = NamedRecipe(dict(source)) if isinstance(source, Mapping) else named_recipe(str(source))

        def opened() -> AnySession:
            from muster.client.aws.connection import open_session  # noqa: PLC0415

            return session or open_session(profile, region)

        return cls(with_model(named, opened), read_sources(named.request, opened))

    @property
    def name(self) -> str:
        """What people call the recipe: its file's name, or its name in the hub."""
        return self._sources.name

    def __repr__(self) -> str:
        return f"Recipe({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._sources == other._sources

    def __hash__(self) -> int:
        return hash(self.name)

    def resolve(
        self,
        overrides: Mapping[str, JsonValue] | None = None,
        *,
        values: Mapping[str, JsonValue] | None = None,
        inputs: Mapping[str, JsonValue] | None = None,
        rank: int = 0,
    ) -> Resolution:
        """The recipe without placeholders and interpolations, with further overrides, values and inputs.

        They replace those that the spec or the mapping has, whose `values` an override here replaces, too. Where a spec
        with `sweep` names the recipe, the recipe is that of `rank`.

        Raises:
            SpecError: the recipe has problems, all of which are listed.
            OptionError: the spec has no such rank, or no sweep.
        """
        changed = self._without_values_of(overrides or {})
        for path, value in (overrides or {}).items():
            changed = with_override(changed, path, value)
        for name, given in (("values", values), ("inputs", inputs)):
            if given:
                changed = {**changed, name: {**(changed.get(name) or {}), **given}}
        named = self._named._replace(request=changed)
        sources = self._sources.model_copy(
            update={name: changed.get(name) or {} for name in ("overrides", "values", "inputs")}
        )
        recipes = _resolved(named, sources)
        if len(recipes) > 1 and not 0 <= rank < len(recipes):
            raise OptionError(str(rank), f"the ranks are 0 to {len(recipes) - 1}", "rank")
        if rank and not (named.spec or {}).get("sweep"):
            raise OptionError(str(rank), "leave it out: there is no sweep, so all ranks have the same recipe", "rank")
        return Resolution(named, sources, recipes[rank if len(recipes) > 1 else 0], len(recipes))

    def _without_values_of(self, overrides: Mapping[str, JsonValue]) -> Fields:
        """The request without the `values` of what is overridden now: they come before the overrides of a spec."""
        request, own = self._named.request, self._sources.values
        suspects = [name for name in own if any(path.rpartition(".")[2] == name for path in overrides)]
        if not suspects:
            return request
        try:
            named = _resolved(self._named, self._sources)[0].named
        except SpecError:
            named = {}  # perhaps because of what is overridden now
        paths = {name: path_text(places[0]) for name, places in named.items()}
        hidden = {
            name
            for name in suspects
            if name not in paths or any(f".{paths[name]}".endswith(f".{path}") or path == name for path in overrides)
        }
        return {**request, "values": {name: value for name, value in own.items() if name not in hidden}}

    def template(self) -> RecipeTemplate:
        """The recipe before it is resolved: its base with the placeholders, and what its values may be.

        Raises:
            SpecError: the base or the override specification cannot be read.
        """
        return template_of(self._sources)


def _resolved(named: NamedRecipe, sources: RecipeSources) -> tuple[ResolvedRecipe, ...]:
    """One recipe, or with `sweep` one for each rank."""
    spec = named.found or named.spec
    if spec is None:
        return (resolve(sources),)
    # With the models of specs.
    from muster.options.recipes.contract.expansion import expansion  # noqa: PLC0415

    # The other fields of a spec give values to its recipe, too.
    return expansion({**spec, "recipe": named.request}, sources).recipes


class Resolution:
    """A resolved recipe: its values, where each came from, and the spec that runs it.

    Two are equal that have the same digest: their replicas get the same recipe.
    """

    def __init__(self, named: NamedRecipe, sources: RecipeSources, resolved: ResolvedRecipe, recipes: int) -> None:
        self._named, self._sources, self._resolved = named, sources, resolved
        self.recipes = recipes
        """How many recipes the spec has: with `sweep` one for each rank, else 1."""

    @property
    def name(self) -> str:
        """What people call the recipe."""
        return self._sources.name

    @property
    def digest(self) -> str:
        """SHA-256 of the values, as 64 hexadecimal digits. `recipes/{digest}/` in the stack's bucket has the recipe."""
        return self._resolved.digest

    @property
    def document(self) -> dict[str, JsonValue]:
        """The values, as JSON has them; a copy."""
        return copy.deepcopy(self._resolved.document)

    def __repr__(self) -> str:
        return f"Resolution({self.name!r}, digest={self.digest[:12]!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resolution) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def explain(self) -> list[RecipeValue]:
        """Every value with the source that it came from, in the recipe's order."""
        return list(recipe_values(self._resolved))

    def sources(self) -> list[RecipeSource]:
        """The sources, from the weakest to the strongest, with how many values came from each."""
        return recipe_sources(self._resolved, self._sources)

    def differences(self, other: Resolution) -> list[RecipeDifference]:
        """What `other` has added, removed and changed."""
        return recipe_differences(self._resolved.document, other._resolved.document)

    def to_yaml(self) -> str:
        """The YAML that replicas get."""
        return self._resolved.to_yaml()

    def spec(self, **fields: object) -> dict[str, object]:
        """A spec with this recipe for `Muster.plan` and `Muster.launch`, which read its sources again.

        `fields` are its other fields, such as `replicas`; they replace those of the spec that the recipe was named by.
        """
        return {**(self._named.spec or {}), **fields, "recipe": copy.deepcopy(self._named.request)}
