"""What `muster recipe` prints, narrow and wide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from muster.client.cli.json_answers import ErrorDetail, RecipeChecked
from muster.client.cli.recipe_tables import (
    Line,
    catalog_lines,
    checked_lines,
    difference_lines,
    resolved_lines,
    summary_lines,
    template_lines,
    yaml_scalar,
)
from muster.client.recipes.catalog import CatalogFilter
from muster.client.recipes.recipe_difference import recipe_differences
from muster.client.recipes.recipe_template import RecipeTemplate, SpecifiedValue
from muster.client.recipes.recipe_values import RecipeSource, RecipeValue
from muster.contract.errors import Problem
from muster.contract.recipe.recipe_catalog import CatalogEntry, RecipeCatalog
from muster.contract.recipe.resolved_recipe import Origin

VALUES = [
    RecipeValue(path="run.name", value="llama-lora", origin=Origin.BASE),
    RecipeValue(path="training_config.data.train", value="s3://bucket/" + "a" * 90, origin=Origin.INPUT),
    RecipeValue(path="training_config.learning_rate", value=0.0002, origin=Origin.OVERRIDE),
]


def texts(lines: Iterable[Line]) -> list[str]:
    return [line.text for line in lines]


def test_a_line_of_the_table_fits_the_terminal_and_ends_with_the_source() -> None:
    shown = texts(resolved_lines(VALUES, 80))
    assert shown[0].split() == ["path", "value", "from"]
    assert max(map(len, shown)) <= 80
    assert [line.split()[-1] for line in shown[1:]] == ["base", "inputs", "overrides"]
    assert "…" in shown[2]
    assert (
        len({line.index(word) for line, word in zip(shown, ("from", "base", "inputs", "overrides"), strict=True)}) == 1
    )


def test_what_no_terminal_limits_is_never_cut() -> None:
    shown = texts(resolved_lines(VALUES, None))
    assert VALUES[1].value in shown[2]
    assert shown[2].endswith("  inputs")


def test_a_narrow_terminal_still_shows_paths_whole_and_the_beginnings_of_values() -> None:
    shown = texts(resolved_lines(VALUES, 40))
    assert all(value.path in line for value, line in zip(VALUES, shown[1:], strict=True))
    assert "s3://bucket/aaa…" in shown[2]


def test_values_that_the_user_has_set_stand_out() -> None:
    assert [line.style for line in resolved_lines(VALUES, 80)] == ["bold", "dim", "", ""]


def test_the_sources_are_counted_below() -> None:
    sources = [
        RecipeSource(origin=Origin.BASE, place="recipes/llama.yaml", values=1_204),
        RecipeSource(origin=Origin.OVERRIDE, place="overrides", values=2),
    ]
    assert texts(summary_lines("llama", "0123456789abcdef" * 4, sources)) == [
        "llama: 1,206 values, digest 0123456789ab",
        "  base       1,204  recipes/llama.yaml",
        "  overrides      2",
    ]


def test_differences_have_signs_colours_and_both_values() -> None:
    found = recipe_differences({"a": 1, "b": {"c": "x"}}, {"a": 2, "d": [1, "two"]})
    lines = list(difference_lines(("one", "two"), found, 80))
    assert texts(lines) == [
        *("A  one", "B  two", ""),
        "  path  A  B",
        "~ a     1  2",
        "- b.c   x  –",
        '+ d     –  [1, "two"]',
    ]
    assert [line.style for line in lines] == ["", "", "", "bold", "yellow", "red", "green"]
    assert texts(difference_lines(("one", "two"), [], 80))[-1] == "The recipes are the same."


def test_two_long_values_share_the_terminal() -> None:
    found = recipe_differences({"p": "a" * 100}, {"p": "b" * 100})
    shown = texts(difference_lines(("one", "two"), found, 60))
    assert len(shown[-1]) <= 60
    assert shown[-1].count("…") == 2


@pytest.mark.parametrize(
    "value",
    [
        *(
            "plain",
            "s3://bucket/key",
            "two words",
            "/opt/ml",
            "1e-4",
            "5e-06",
            "1.5",
            "0x10",
            "true",
            "No",
            "null",
            "~",
        ),
        *(
            "",
            " spaced ",
            "a: b",
            "a #b",
            "ends:",
            "- item",
            "{{x}}",
            "*alias",
            "&anchor",
            "!tag",
            "@at",
            "%x",
            "line\n",
        ),
        *("'quoted'", "[list]", "2026-11-22", ".inf", "nan", "y", "#comment", "=", "<<", "é", "_", "..", "...", "---"),
        *(1, 1.5, 1e-06, True, None, [1, "a"], {"a": None}),
    ],
)
def test_a_value_reads_back_as_itself(value: Any) -> None:
    shown = yaml_scalar(value)
    assert "\n" not in shown
    assert yaml.safe_load(f"key: {shown}") == {"key": value} or isinstance(value, float)
    if isinstance(value, str):
        assert isinstance(yaml.safe_load(f"key: {shown}")["key"], str)


def specified(name: str, **fields: Any) -> SpecifiedValue:
    nothing = {
        "type": None,
        "required": False,
        "default": None,
        "min": None,
        "max": None,
        "enum": (),
        "description": "",
    }
    return SpecifiedValue(name=name, **{**nothing, **fields})


def test_a_template_shows_its_text_and_what_each_value_may_be() -> None:
    template = RecipeTemplate(
        name="llama",
        place="llama.yaml",
        text="run:\n  name: '{{name}}'\n  kind: sft\n",
        paths=("run.name", "run.kind"),
        placeholders=("name",),
        specification=(
            specified("name", type="string", required=True, description="What the run is called. " * 4),
            specified("lr", type="float", default=1e-4, min=1e-6, max=0.01),
            specified("steps", type="integer", default=10, min=1),
            specified("mode", enum=("a", 1)),
            specified("gain", max=2),
            specified("rest"),
        ),
    )
    lines = list(template_lines(template, 60))
    assert texts(lines)[:6] == ["# llama: llama.yaml", "run:", "  name: '{{name}}'", "  kind: sft", "", lines[5].text]
    assert [line.style for line in lines[1:4]] == ["", "bold", ""]
    assert max(map(len, texts(lines))) <= 60
    heading, *table = [line.split(maxsplit=3) for line in texts(lines)[5:] if not line.startswith(" ")]
    assert heading == ["name", "type", "default", "allowed"]
    assert {name: cells for name, *cells in table} == {
        "name": ["string", "required", "any"],
        "lr": ["float", "0.0001", "1e-06 to 0.01"],
        "steps": ["integer", "10", "at least 1"],
        "mode": ["any", "–", "a, 1"],
        "gain": ["any", "–", "at most 2"],
        "rest": ["any", "–", "any"],
    }
    assert texts(template_lines(template.model_copy(update={"specification": ()}), 60))[-1] == "  kind: sft"


CATALOG = RecipeCatalog(
    place="recipes",
    recipes=(
        CatalogEntry(
            name="a/llmft_llama3_1_8b_seq4k_sft_lora", technique="SFT", training_type="LORA", sequence_length="4K"
        ),
        CatalogEntry(name="b/nova-dpo", title="Nova Pro", technique="DPO", sequence_length="8192", usable=False),
        CatalogEntry(name="c/plain"),
    ),
    remarks=("c/odd.yaml is left out",),
)


def test_a_catalog_is_a_table_with_the_names_last() -> None:
    lines = list(catalog_lines(CATALOG))
    assert texts(lines) == [
        "technique  type  tokens  recipe",
        "SFT        LORA      4K  a/llmft_llama3_1_8b_seq4k_sft_lora",
        "DPO        –       8192  b/nova-dpo (for clusters only)",
        "–          –          –  c/plain",
        "Note: c/odd.yaml is left out.",
    ]
    assert [line.style for line in lines] == ["bold", "", "dim", "", "yellow"]
    nothing = CatalogFilter(technique="PPO").of(CATALOG)
    assert texts(catalog_lines(nothing))[0] == "recipes has no recipe that meets these conditions."


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (CatalogFilter(), 3),
        (CatalogFilter(model="Llama-3.1-8B"), 1),
        (CatalogFilter(model="nova pro"), 1),
        (CatalogFilter(technique="sft"), 1),
        (CatalogFilter(training_type="lora"), 1),
        (CatalogFilter(sequence_length="4096"), 1),
        (CatalogFilter(sequence_length="8k"), 1),
        (CatalogFilter(sequence_length="8k", technique="SFT"), 0),
    ],
)
def test_a_catalog_is_filtered_by_every_condition(wanted: CatalogFilter, names: int) -> None:
    assert len(wanted.of(CATALOG).recipes) == names


def test_checked_recipes_have_all_their_problems() -> None:
    problems = (Problem("recipe.a.lr (overrides)", "2", "lower it", "at most 1"), Problem("recipe.b (base)", "''", "x"))
    checked = [
        RecipeChecked(source="a.yaml", digest="f" * 64, values=1, error=None),
        RecipeChecked(
            source="b.yaml", digest=None, error=ErrorDetail(code="c", message="m", problems=problems, more=3)
        ),
        RecipeChecked(source="c.yaml", digest=None, error=ErrorDetail(code="c", message="It is gone.", problems=())),
    ]
    lines = list(checked_lines(checked))
    assert texts(lines) == [
        "a.yaml: valid, 1 value, digest ffffffffffff",
        "b.yaml: 5 problems",
        "  - recipe.a.lr (overrides): found 2; at most 1; lower it",
        "  - recipe.b (base): found ''; x",
        "  and 3 more",
        "c.yaml: It is gone.",
    ]
    assert [line.style for line in lines] == ["green", "red", "", "", "", "red"]
