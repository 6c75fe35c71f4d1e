"""A recipe of the largest size: reading its YAML, resolving it, and writing it; and the cold import of what does so."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.cold_import import measured
from bench.table import Row
from muster.options.recipes.contract.recipe_text import load_recipe_text, recipe_yaml
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText

_LEAVES, _INTERPOLATIONS = 2_000, 300
_REPETITIONS = 50
_PARTS, _KEYS = 5, 10

# What the recipes of SageMaker have: references, relative ones, arithmetic, and references with a default.
_FORMS = ("${run.name}", "${multiply:${run.nodes},4}", "${.key_0}", "${oc.select:run.root,/opt/ml}/part")
_VALUES = ("7", "0.1", "true", "cosine", "null", "1e-5", "'16'", "s3://bucket/prefix/data")


def run() -> list[Row]:
    """The whole of a resolution and its parts, and the cold import of the function that plans runs."""
    text = largest_recipe()
    sources = RecipeSources(name="largest", recipe=SourceText(place="recipe.yaml", text=text))
    document = resolve(sources).document
    note = (
        f"{_LEAVES:,} leaves, {_INTERPOLATIONS} interpolations, {len(text):,} characters; least of {_REPETITIONS}, CPU"
    )
    whole, reading = _milliseconds(lambda: resolve(sources)), _milliseconds(lambda: load_recipe_text(text))
    return [
        Row("from YAML to the resolved recipe", whole, "ms", "<= 50", note=note),
        Row("of which reading the YAML", reading, "ms"),
        Row("of which resolving", whole - reading, "ms"),
        Row("writing the resolved YAML", _milliseconds(lambda: recipe_yaml(document)), "ms"),
        *measured(["plan"]),
    ]


def largest_recipe() -> str:
    """The YAML of a recipe in the shape of the public ones: sections of sections."""
    lines = ["run:", "  name: largest", "  root: /opt/ml", "  nodes: 8"]
    leaves, interpolations = 3, 0
    while leaves < _LEAVES:
        number = leaves - 3
        part, key = divmod(number, _KEYS)
        if part % _PARTS == 0 and key == 0:
            lines.append(f"section_{part // _PARTS}:")
        if key == 0:
            lines.append(f"  part_{part % _PARTS}:")
        value = _VALUES[number % len(_VALUES)]
        if key in {2, 5} and interpolations < _INTERPOLATIONS:
            value = _FORMS[interpolations % len(_FORMS)]
            interpolations += 1
        lines.append(f"    key_{key}: {value}")
        leaves += 1
    return "\n".join([*lines, ""])


def _milliseconds(work: Callable[[], object]) -> float:
    """CPU time of this process: what other processes do makes it longer, never shorter."""
    least = float("inf")
    for _ in range(_REPETITIONS):
        begin = time.process_time()
        work()
        least = min(least, time.process_time() - begin)
    return least * 1_000
