"""What `muster recipe` prints, narrow and wide."""

from collections.abc import Iterable
from typing import Any

import yaml

from muster.options.recipes.client.catalog import CatalogEntry, RecipeCatalog, admits
from muster.options.recipes.client.recipe_tables import (
    Line,
    catalog_lines,
    difference_lines,
    template_lines,
    yaml_scalar,
)
from muster.options.recipes.client.recipe_values import RecipeTemplate, recipe_differences
from muster.options.recipes.contract.override_spec import SpecifiedValue


def texts(lines: Iterable[Line]) -> list[str]:
    return [line.text for line in lines]


def test_differences_have_signs_colours_and_both_values() -> None:
    found = recipe_differences({"a": 1, "b": {"c": "x"}}, {"a": 2, "d": [1, "two"]})
    lines = list(difference_lines(("one", "two"), found, 80))
    assert texts(lines)[4:] == ["~ a     1  2", "- b.c   x  –", '+ d     –  [1, "two"]']
    assert [line.style for line in lines[3:]] == ["bold", "yellow", "red", "green"]
    # Two long values share the terminal.
    found = recipe_differences({"p": "a" * 100}, {"p": "b" * 100})
    *_, shown = texts(difference_lines(("one", "two"), found, 60))
    assert (len(shown) <= 60, shown.count("…")) == (True, 2)


WORDS = "plain|s3://bucket/key|two words|/opt/ml|1e-4|5e-06|1.5|0x10|true|No|null|~|| spaced |a: b|a #b|ends:|- item"
MORE = "{{x}}|*alias|&anchor|!tag|@at|%x|line\n|'quoted'|[list]|2026-11-22|.inf|nan|y|#comment|=|<<|é|_|..|...|---"


def test_a_value_reads_back_as_itself() -> None:
    others: list[Any] = [1, 1.5, 1e-06, True, None, [1, "a"], {"a": None}]
    for value in (*WORDS.split("|"), *MORE.split("|"), *others):
        shown = yaml_scalar(value)
        assert "\n" not in shown, value
        read = yaml.safe_load(f"key: {shown}")["key"]
        # PyYAML takes 1e-06 for text.
        assert (read, type(read)) == (value, type(value)) or isinstance(value, float), value


def test_a_template_shows_its_text_and_what_each_value_may_be() -> None:
    """docs/recipes.md shows numbers and their defaults."""
    specification = (
        SpecifiedValue(name="name", type="string", required=True, description="What the run is called. " * 4),
        SpecifiedValue(name="mode", enum=("a", 1)),
        SpecifiedValue(name="gain", max=2),
    )
    about = {"name": "llama", "place": "llama.yaml", "paths": ("run.name",), "placeholders": ("name",)}
    template = RecipeTemplate(text="run:\n  name: '{{name}}'\n", specification=specification, **about)
    shown = texts(template_lines(template, 60))
    assert shown[:3] == ["# llama: llama.yaml", "run:", "  name: '{{name}}'"]
    assert max(map(len, shown)) <= 60
    assert [line.split(maxsplit=3) for line in shown[5:] if not line.startswith(" ")] == [
        *(["name", "string", "required", "any"], ["mode", "any", "–", "a, 1"], ["gain", "any", "–", "at most 2"]),
    ]


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


def test_a_catalog_is_filtered_by_every_condition_and_shown_as_a_table() -> None:
    for wanted, count in (
        ({"model": "Llama-3.1-8B"}, 1),
        ({"model": "nova pro"}, 1),
        ({"technique": "sft"}, 1),
        ({"training_type": "lora"}, 1),
        ({"sequence_length": "4096"}, 1),
        ({"sequence_length": "8k"}, 1),
        ({"sequence_length": "8k", "technique": "SFT"}, 0),
    ):
        assert sum(admits(one, **wanted) for one in CATALOG.recipes) == count, wanted
    assert texts(catalog_lines(CATALOG)) == [
        "technique  type  tokens  recipe",
        "SFT        LORA      4K  a/llmft_llama3_1_8b_seq4k_sft_lora",
        "DPO        –       8192  b/nova-dpo (for clusters only)",
        "–          –          –  c/plain",
        "Note: c/odd.yaml is left out.",
    ]
