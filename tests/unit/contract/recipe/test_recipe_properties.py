"""Whatever a recipe, its specification and its overrides say: one kind of error, one result, nothing from outside.

What a resolved recipe writes is read back by Muster and by PyYAML.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from muster.contract.errors import RecipeError
from muster.options.recipes.contract.document_values import leaves
from muster.options.recipes.contract.expressions.placeholders import placeholder_names
from muster.options.recipes.contract.recipe_text import load_recipe_text, recipe_yaml
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources, ResolvedRecipe, SourceText

CANARY = "canary-4c1d0f7e9a"
NAMES = ["a", "b", "c", "lr", "run", "name", "x-y", "1", "k.e", "MUSTER_CANARY", "recipes", "training", "yes", "{{a}}"]

# Pieces of text that mean something in a recipe, alone or next to each other.
_REFERENCES = "${ } {{ }} {{name}} ${a} ${.b} ${..c} ${run.name} ${recipes.a} ${a[0]} . /canary ??? <<"
_CALLS = (
    "${oc.select:a.b,c} ${oc.create:{a:${b}}} ${multiply:${lr},2} ${divide_ceil:${a},${b}} ${add:1,${lr}} "
    "${oc.env:MUSTER_CANARY} ${oc.env:HOME,x} ${oc.decode:${a}} ${oc.dict.keys:run} ${file:/canary}"
)
_YAML = "!!python/name:os.environ *x &x \\ ' \" , : $ [ ] # é"
_YAML += " \u2028 1e-6 0777 12:30 ~ on - {} \U0001f600 \x7f \ufeff % @ ` | >"
PIECES = st.sampled_from(
    [*NAMES, *_REFERENCES.split(), *_CALLS.split(), *_YAML.split(" "), " ", "\n", "\t", "{{ name }}"]
)
TEXTS = st.lists(PIECES, max_size=4).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.integers(-10, 10) | st.integers() | st.floats(allow_nan=True) | st.floats(1e-9, 1e9)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
KEYS = st.sampled_from(NAMES) | TEXTS


def documents(scalars: st.SearchStrategy[object], leaves: int = 12) -> st.SearchStrategy[dict[str, JsonValue]]:
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=leaves
    )
    return st.dictionaries(KEYS, values, max_size=5)  # type: ignore[return-value]


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["float", "integer", "string", "boolean", "array", "blob"]) | SCALARS,
        "default": SCALARS,
        "required": st.booleans() | SCALARS,
        "min": st.integers(-5, 5) | SCALARS,
        "max": st.integers(-5, 5) | SCALARS,
        "enum": st.lists(SCALARS, max_size=3) | SCALARS,
        "conditional_constraints": st.dictionaries(st.sampled_from(["enum", "min"]), SCALARS, max_size=2),
    },
)
SPECS = st.dictionaries(st.sampled_from(NAMES), LIMITS | SCALARS, max_size=4)


def _as_text(document: object) -> SourceText:
    return SourceText(place="/canary", text=json.dumps(document))


def _as_yaml(document: object) -> SourceText:
    """A template: what it says is a placeholder or an interpolation."""
    text = recipe_yaml(document) if isinstance(document, dict) else json.dumps(document)
    return SourceText(place="/canary", text=text)


@st.composite
def _addresses(
    draw: st.DrawFn, document: dict[str, JsonValue], nested: st.SearchStrategy[bool]
) -> dict[str, JsonValue]:
    """Values for some places of a document: by path, nested or with dots, by name, or by a name that is not there."""
    found: dict[str, JsonValue] = {}
    places = [[str(part) for part in path] for path, _ in leaves(document)]
    for path in draw(st.lists(st.sampled_from(places), max_size=3)) if places else []:
        value = draw(SCALARS | st.lists(SCALARS, max_size=2))
        begin = draw(st.integers(0, len(path) - 1))
        if draw(nested):
            for part in reversed(path[begin:]):
                value = {part: value}
            assert isinstance(value, dict)
            found = {**found, **value}
        else:
            found[".".join(path[begin:])] = value
    return {**found, **(draw(documents(SCALARS, leaves=2)) if draw(st.integers(0, 5)) == 0 else {})}


@st.composite
def _sources(draw: st.DrawFn) -> RecipeSources:
    base = draw(documents(SCALARS))
    spec = draw(st.none() | SPECS)
    recipe = draw(st.none() | _addresses(base, st.just(value=True)))
    template = base if recipe is None or draw(st.booleans()) else recipe
    names = placeholder_names(template)
    inputs = {name: draw(SCALARS) for name in names if spec is None or name not in spec or draw(st.booleans())}
    wrong = draw(st.sampled_from(["", "", "", "", "", "", "base", "spec", "recipe"]))
    return RecipeSources(
        name="a",
        base=_as_yaml(draw(SCALARS) if wrong == "base" else base),
        override_spec=_as_text(draw(SCALARS)) if wrong == "spec" else None if spec is None else _as_text(spec),
        recipe=_as_yaml(draw(SCALARS)) if wrong == "recipe" else None if recipe is None else _as_yaml(recipe),
        overrides=draw(_addresses(base, st.booleans())),
        values=draw(st.just({}) | _addresses(base, st.booleans())),
        inputs=inputs if draw(st.integers(0, 5)) else {**inputs, **draw(documents(SCALARS, leaves=2))},
        hub_model=draw(st.none() | st.just("model")),
        sequence_length=draw(st.none() | st.just(4096)),
    )


SOURCES = _sources()


@pytest.fixture(autouse=True, scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("canary")
    (folder / "canary").write_text(CANARY)
    before, here = dict(os.environ), Path.cwd()
    os.environ["MUSTER_CANARY"] = CANARY
    os.chdir(folder)
    yield
    os.chdir(here)
    os.environ.clear()
    os.environ.update(before)


def outcome(sources: RecipeSources) -> ResolvedRecipe | str:
    """The recipe, or the error's words. Any other error fails the test."""
    try:
        return resolve(sources)
    except RecipeError as error:
        return str(error)


def shuffled(value: JsonValue, random: Random) -> JsonValue:
    if not isinstance(value, dict):
        return value
    keys = list(value)
    random.shuffle(keys)
    return {key: shuffled(value[key], random) for key in keys}


@settings(max_examples=100, deadline=None)
@given(SOURCES, st.randoms(use_true_random=False))
def test_a_recipe_is_resolved_or_refused_in_any_order_of_values_and_resolves_to_itself(
    sources: RecipeSources, random: Random
) -> None:
    changed = {name: shuffled(getattr(sources, name), random) for name in ("overrides", "values", "inputs")}
    found, other = outcome(sources), outcome(sources.model_copy(update=changed))
    if isinstance(found, str) or isinstance(other, str):
        assert found == other
        assert CANARY not in str(found)
        assert all(line.isprintable() for line in str(found).split("\n"))
        return
    text = found.to_yaml()
    assert CANARY not in text
    assert load_recipe_text(text) == _with_text_keys(yaml.safe_load(text)) == found.document
    again = resolve(RecipeSources(name="a", recipe=SourceText(place="", text=text)))
    assert (again.document, again.digest) == (found.document, found.digest)
    assert again.origins.keys() == found.origins.keys()
    assert (found.document, found.digest, dict(found.origins)) == (other.document, other.digest, dict(other.origins))
    assert text == other.to_yaml()


@settings(max_examples=100, deadline=None)
@given(TEXTS | st.lists(PIECES | st.sampled_from(["\n", "\n  ", ": ", "- ", "a: "]), max_size=12).map("".join))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    found = outcome(RecipeSources(name="a", recipe=SourceText(place="/canary", text=text)))
    if isinstance(found, str):
        assert CANARY not in found
        assert all(line.isprintable() for line in found.split("\n"))


def _with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
