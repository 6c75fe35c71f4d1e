"""What the commands of `muster recipe` print. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from muster.client.launch.planned_recipe import DIGEST_SHOWN, source_lines
from muster.contract.spec.recipe_reference import Origin
from muster.contract.text import columns, shortened
from muster.options.recipes.contract.override_spec import limits
from muster.options.recipes.contract.recipe_text import is_plain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from muster.client.launch.planned_recipe import RecipeSource
    from muster.options.recipes.client.catalog import RecipeCatalog
    from muster.options.recipes.client.recipe_answers import RecipeChecked
    from muster.options.recipes.client.recipe_values import (
        RecipeDifference,
        RecipeTemplate,
        RecipeValue,
    )
    from muster.options.recipes.contract.override_spec import SpecifiedValue

_VALUE_MIN = 16  # characters: a narrower column says nothing, so the line becomes longer than the terminal
_VALUE_MAX = 64  # of the column where lines may have any length
_WORDS_MIN, _WORDS_MAX = 30, 100  # characters of a line of a description
_NONE = "–"
_WEAK = {Origin.BASE, Origin.DEFAULT}
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class Line(NamedTuple):
    """A line, and its style in a terminal with colours: `dim`, `green`, `red`, `yellow`, `bold` or none."""

    text: str
    style: str = ""


def resolved_lines(values: Sequence[RecipeValue], width: int | None) -> Iterator[Line]:
    """A table of every value with its source. What no source of the user's has set is dim."""
    rows = [(value.path, yaml_scalar(value.value), str(value.origin)) for value in values]
    styles = ["dim" if value.origin in _WEAK else "" for value in values]
    return _table([("path", "value", "from"), *rows], styles, width, cut=1)


def summary_lines(name: str, digest: str, sources: Sequence[RecipeSource]) -> Iterator[Line]:
    """What the recipe is called, its digest, and a line for each of its sources."""
    total = sum(source.values for source in sources)
    yield Line(f"{name}: {_values(total)}, digest {digest[:DIGEST_SHOWN]}")
    yield from map(Line, source_lines(sources))


def difference_lines(
    names: Sequence[str], differences: Sequence[RecipeDifference], width: int | None
) -> Iterator[Line]:
    """Which two recipes, and a table of the values that differ; a line that says so where none does."""
    yield from (Line(f"{side}  {name}") for side, name in zip("AB", names, strict=True))
    yield Line("")
    if not differences:
        yield Line("The recipes are the same.")
        return
    rows = [(f"{_SIGNS[one.change]} {one.path}", *(_side(one, side) for side in ("a", "b"))) for one in differences]
    yield from _table([("  path", "A", "B"), *rows], [_STYLES[one.change] for one in differences], width, cut=2)


def _side(difference: RecipeDifference, side: str) -> str:
    absent = {"a": "added", "b": "removed"}[side]
    return _NONE if difference.change == absent else yaml_scalar(getattr(difference, side))


def catalog_lines(catalog: RecipeCatalog) -> Iterator[Line]:
    """A table of recipes, with the name last: it is what a spec takes, and is never cut."""
    if not catalog.recipes:
        yield Line(f"{catalog.place} has no recipe that meets these conditions.")
    else:
        rows = [
            (
                recipe.technique or _NONE,
                recipe.training_type or _NONE,
                recipe.sequence_length or _NONE,
                recipe.name if recipe.usable else f"{recipe.name} (for clusters only)",
            )
            for recipe in catalog.recipes
        ]
        styles = ["" if recipe.usable else "dim" for recipe in catalog.recipes]
        yield from _table([("technique", "type", "tokens", "recipe"), *rows], styles, right={2})
    yield from (Line(f"Note: {remark}.", "yellow") for remark in catalog.remarks)


def template_lines(template: RecipeTemplate, width: int | None) -> Iterator[Line]:
    """The base as it was read, and a table of what its values may be."""
    yield Line(f"# {template.name}: {template.place}", "dim")
    # Lines with a placeholder are those that a user fills in.
    yield from (Line(line, "bold" if "{{" in line else "") for line in template.text.rstrip("\n").split("\n"))
    if not template.specification:
        return
    yield Line("")
    rows = [(one.name, one.type or "any", _default(one), _allowed(one)) for one in template.specification]
    header, *table = _table([("name", "type", "default", "allowed"), *rows], [""] * len(rows))
    yield header
    for row, one in zip(table, template.specification, strict=True):
        yield row
        for line in textwrap.wrap(one.description, max(_WORDS_MIN, (width or _WORDS_MAX) - 4)):
            yield Line(f"    {line}", "dim")


def _default(value: SpecifiedValue) -> str:
    if value.default is None:
        return "required" if value.required else _NONE
    return yaml_scalar(value.default)


def _allowed(value: SpecifiedValue) -> str:
    return ", ".join(map(yaml_scalar, value.enum)) or limits(value) or "any"


def checked_lines(recipes: Sequence[RecipeChecked]) -> Iterator[Line]:
    """A line for each recipe, with the problems of those that cannot be resolved."""
    for one in recipes:
        if one.error is None:
            yield Line(
                f"{one.source}: valid, {_values(one.values)}, digest {(one.digest or '')[:DIGEST_SHOWN]}", "green"
            )
            continue
        if not one.error.problems:
            yield Line(f"{one.source}: {one.error.message}", "red")
            continue
        count = len(one.error.problems) + one.error.more
        yield Line(f"{one.source}: {count:,} problem{'' if count == 1 else 's'}", "red")
        yield from (Line(f"  - {problem}") for problem in one.error.problems)
        if one.error.more:
            yield Line(f"  and {one.error.more:,} more")


def yaml_scalar(value: JsonValue) -> str:
    """A value on one line, as YAML and JSON both read it; text is bare where YAML can take it for nothing else."""
    return value if isinstance(value, str) and is_plain(value) else json.dumps(value, ensure_ascii=False)


def _values(count: int) -> str:
    return f"{count:,} value{'' if count == 1 else 's'}"


def _table(
    rows: Sequence[tuple[str, ...]],
    styles: Sequence[str],
    width: int | None = None,
    *,
    cut: int = 0,
    right: Collection[int] = (),
) -> Iterator[Line]:
    """A header and rows in columns two spaces apart, with the rows' styles.

    `cut` of the columns, from the second on, are shortened so that a line has at most `width` characters, where that
    leaves room for them. None: nothing is shortened, and a long value moves what follows it.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if cut and width is None:
        widths[1 : 1 + cut] = [min(size, _VALUE_MAX) for size in widths[1 : 1 + cut]]
    elif cut and width is not None:
        others = widths[0] + sum(widths[1 + cut :]) + 2 * (len(widths) - 1)
        widths[1 : 1 + cut] = _fitted(widths[1 : 1 + cut], width - others)
        rows = [tuple(map(shortened, row, widths)) for row in rows]
    return map(Line, columns(rows, right=right, widths=widths), ["bold", *styles])


def _fitted(widths: Sequence[int], left: int) -> list[int]:
    """Widths of columns that share `left` characters; a column that needs less than its share leaves it to others."""
    share = max(_VALUE_MIN, left // len(widths))
    spare = sum(max(0, share - width) for width in widths)
    return [width if width <= share else min(width, share + spare) for width in widths]
