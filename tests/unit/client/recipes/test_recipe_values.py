"""The values of a resolved recipe with their sources, and how two recipes differ."""

from __future__ import annotations

from typing import Any

import pytest

from muster.client.recipes.recipe_difference import recipe_differences
from muster.client.recipes.recipe_values import path_text, recipe_sources, recipe_values
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.resolved_recipe import Origin, ResolvedRecipe

DOCUMENT: dict[str, Any] = {
    "run": {"name": "first", "tags": [], "extra": {}},
    "training_config": {"lr": 0.1, "steps": 10, "layers": [1, {"a": 2}], "odd.key": True},
}
ORIGINS = {
    ("run", "name"): Origin.INPUT,
    ("run", "tags"): Origin.BASE,
    ("run", "extra"): Origin.BASE,
    ("training_config", "lr"): Origin.OVERRIDE,
    ("training_config", "steps"): Origin.FILE,
    ("training_config", "layers"): Origin.BASE,
    ("training_config", "odd.key"): Origin.DEFAULT,
}
RESOLVED = ResolvedRecipe(DOCUMENT, ORIGINS, {})


def test_every_value_is_shown_once_with_its_source() -> None:
    shown = [(value.path, value.value, value.origin) for value in recipe_values(RESOLVED)]
    assert shown == [
        ("run.name", "first", "inputs"),
        ("run.tags", [], "base"),
        ("run.extra", {}, "base"),
        ("training_config.lr", 0.1, "overrides"),
        ("training_config.steps", 10, "file"),
        ("training_config.layers", [1, {"a": 2}], "base"),
        ('training_config."odd.key"', True, "default"),
    ]


def test_the_sources_are_named_with_how_many_values_each_gave() -> None:
    sources = RecipeSources(
        name="first",
        base=SourceText(place="base.yaml", text=""),
        override_spec=SourceText(place="base.json", text=""),
        recipe=SourceText(place="mine.yaml", text=""),
    )
    assert [(one.origin, one.place, one.values) for one in recipe_sources(RESOLVED, sources)] == [
        ("base", "base.yaml", 3),
        ("default", "base.json", 1),
        ("inputs", "inputs", 1),
        ("file", "mine.yaml", 1),
        ("overrides", "overrides", 1),
    ]
    alone = RecipeSources(name="mine", recipe=SourceText(place="mine.yaml", text=""))
    (source,) = recipe_sources(ResolvedRecipe({"a": 1}, {("a",): Origin.BASE}, {}), alone)
    assert (source.origin, source.place) == ("base", "mine.yaml")


def test_a_key_that_is_no_plain_word_stands_in_quotes() -> None:
    assert path_text(("a", "b-c_1", 2)) == "a.b-c_1.2"
    assert path_text(("a.b", "", 'c"d')) == '"a.b".""."c\\"d"'


@pytest.mark.parametrize(
    ("a", "b", "change"),
    [
        ({"x": 1}, {}, ("x", "removed", 1, None)),
        ({}, {"x": None}, ("x", "added", None, None)),
        ({"x": 1}, {"x": 2}, ("x", "changed", 1, 2)),
        ({"x": [1, 2]}, {"x": [2, 1]}, ("x", "changed", [1, 2], [2, 1])),
        # What Python holds for equal is not the same in YAML.
        ({"x": 1}, {"x": True}, ("x", "changed", 1, True)),
        ({"x": 1}, {"x": 1.0}, ("x", "changed", 1, 1.0)),
        ({"x": [{"y": 0}]}, {"x": [{"y": False}]}, ("x", "changed", [{"y": 0}], [{"y": False}])),
        ({"x": None}, {"x": "null"}, ("x", "changed", None, "null")),
    ],
)
def test_a_difference_has_both_values(a: Any, b: Any, change: tuple[object, ...]) -> None:
    (found,) = recipe_differences(a, b)
    assert (found.path, found.change, found.a, found.b) == change


def test_recipes_with_the_same_values_do_not_differ() -> None:
    assert recipe_differences(DOCUMENT, dict(reversed(DOCUMENT.items()))) == []


def test_the_differences_stand_in_the_order_of_the_first_recipe_and_then_the_second() -> None:
    a = {"z": 1, "section": {"gone": 1, "kept": 2}, "empty": {}}
    b = {"new": 0, "section": {"kept": 3, "more": 4}, "empty": {"full": 1}, "z": 2}
    assert [(one.change, one.path) for one in recipe_differences(a, b)] == [
        ("changed", "z"),
        ("removed", "section.gone"),
        ("changed", "section.kept"),
        ("removed", "empty"),
        ("added", "new"),
        ("added", "section.more"),
        ("added", "empty.full"),
    ]
