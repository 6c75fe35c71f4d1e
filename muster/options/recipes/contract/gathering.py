"""Gathering the sources of a recipe: what is read, in which order, and what is wrong with a request.

The reading itself is a `RecipeReader`'s. All places are tried, so that all problems are found at once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.options.recipes.contract.checkout_recipe import checkout_recipe
from muster.options.recipes.contract.hub_collection import (
    CollectedRecipe,
    HubModel,
    find_model,
    own_place,
    select,
    tokens_of,
)
from muster.options.recipes.contract.recipe_reader import RecipeReader
from muster.options.recipes.contract.recipe_request import HubRecipe, RecipeRequest
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from muster.options.recipes.contract.text_places import PlaceError, in_s3, refuse, s3_place

_Found = TypeVar("_Found")


def gather(request: RecipeRequest, reader: RecipeReader, default_hub: str | None = None) -> RecipeSources:
    """Everything that the resolution of `request` reads.

    `default_hub` is a private hub that is asked where the request names none.

    Raises:
        SpecError: with every place that cannot be read, and everything in the request that contradicts itself.
    """
    gathering = _Gathering(reader)
    gathering.problems += _contradictions(request)
    sources = gathering.sources(request, default_hub)
    if gathering.problems:
        raise SpecError(gathering.problems)
    return sources


def _contradictions(request: RecipeRequest) -> list[Problem]:
    found: list[Problem] = []
    if request.file is None and request.base is None and request.hub is None:
        found.append(StatedProblem("recipe", "names no recipe", "set file, base or hub"))
    if request.hub is not None:
        for name in ("base", "override_spec", "checkout"):
            if getattr(request, name) is not None:
                statement, remedy = "set together with hub, which brings its own", "leave one of the two out"
                found.append(StatedProblem(f"recipe.{name}", statement, remedy))
    elif request.checkout is not None and request.base is None:
        remedy = "name a recipe in it: base: fine-tuning/…; `muster recipe list` shows them"
        found.append(StatedProblem("recipe.checkout", "set without base", remedy))
    return found


@dataclass
class _Gathering:
    """One gathering: what it reads, and the problems so far."""

    reader: RecipeReader
    problems: list[Problem] = field(default_factory=list)

    def sources(self, request: RecipeRequest, default_hub: str | None) -> RecipeSources:
        sources = RecipeSources(
            name=_name_of(request.file or request.base or "recipe")[:256],
            base=self._base(request),
            override_spec=self._text("override_spec", request.override_spec),
            recipe=self._text("file", request.file),
            overrides=request.overrides,
            values=request.values,
            inputs=request.inputs,
        )
        hub = request.hub
        found = None if hub is None else self._tried("hub", lambda: self._selected(hub, default_hub))
        if found is None:
            return sources
        model, chosen = found
        weights, parameters = model.weights, chosen.override_params
        of_hub = {
            "base": self._tried("hub", lambda: self._read_object(chosen.template)),
            "override_spec": self._tried("hub", lambda: self._read_object(parameters)) if parameters else None,
            "hub_model": model.name,
            "sequence_length": tokens_of(chosen.sequence_length),
            "image": chosen.image or None,
            "weights": self._tried("hub", lambda: own_place(weights, self.reader)) if weights else None,
        }
        if request.file is None:
            of_hub["name"] = chosen.name[:256] or model.name
        return sources.model_copy(update=of_hub)

    def _base(self, request: RecipeRequest) -> SourceText | None:
        if request.base is None or request.checkout is None:
            return self._text("base", request.base)
        base, folder = request.base, request.checkout
        files = self._tried("checkout", lambda: self.reader.files(_local(folder)))
        if files is None:
            return None
        return self._tried("base", lambda: checkout_recipe(self.reader, folder, files, base))

    def _text(self, name: str, place: str | None) -> SourceText | None:
        """The text of a file or object."""
        if place is None:
            return None

        def read() -> SourceText:
            if in_s3(place):
                return self._read_object(place)
            return SourceText(place=place, text=self.reader.read_text(place))

        return self._tried(name, read)

    def _read_object(self, uri: str) -> SourceText:
        place = s3_place(own_place(uri, self.reader))
        return SourceText(place=place.uri, text=self.reader.read_object(place))

    def _selected(self, request: HubRecipe, default_hub: str | None) -> tuple[HubModel, CollectedRecipe]:
        model = find_model(self.reader, request.model, request.hub or default_hub)
        return model, select(request, model)

    def _tried(self, name: str, read: Callable[[], _Found]) -> _Found | None:
        """What `read` gives; None where it fails, which is then among the problems."""
        try:
            return read()
        except PlaceError as error:
            self.problems.append(error.problem(f"recipe.{name}"))
            return None


def _local(place: str) -> str:
    if in_s3(place):
        refuse(f"{place!r} is not a local folder", "clone the public recipes, and name the folder")
    return place


def _name_of(place: str) -> str:
    name = posixpath.basename(place.replace("\\", "/").rstrip("/"))
    return name.removesuffix(".yaml").removesuffix(".yml") or "recipe"
