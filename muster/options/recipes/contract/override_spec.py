"""The override specification of a recipe: what each of its parameters may be, as SageMaker Hub describes it in JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from pydantic import JsonValue

from muster.contract.spec.private_values import kind_of
from muster.options.recipes.contract.recipe_problems import Problems
from muster.options.recipes.contract.recipe_text import TEXT_MAX

_NAMES_MAX = 4_096
_CONDITIONS = "conditional_constraints"
_BY_NAME, _OTHERWISE = "Name", "default"
_CONDITIONAL = ("default", "enum", "min", "max")

MACHINES = frozenset({"instance_type", "replicas"})
"""Parameters of the training job, not of the recipe: the spec says them."""

# Other names of types are not checked.
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("float", "number", "double", "numeric"), ("a number", (int, float))),
    **dict.fromkeys(("integer", "int", "long"), ("a whole number", (int,))),
    **dict.fromkeys(("string", "str", "text"), ("text", (str,))),
    **dict.fromkeys(("boolean", "bool"), ("true or false", (bool,))),
    **dict.fromkeys(("array", "list"), ("a list", (list,))),
    **dict.fromkeys(("object", "dict", "map", "mapping"), ("a mapping", (dict,))),
}


@dataclass(frozen=True)
class Parameter:
    """What one parameter may be."""

    name: str
    default: JsonValue = None
    required: bool = False
    type: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[JsonValue, ...] | None = None

    def mistake(self, value: JsonValue) -> tuple[str, str] | None:
        """What is allowed and what to do, if the value is wrong. The default and no value are always right."""
        if value is None or same(value, self.default):
            return None
        words, types = _TYPES.get(self.type.lower(), ("", ()))
        if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
            return words, f"write {words}"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and not _within(value, self.least, self.most):
            below = self.least is not None and value < self.least  # type: ignore[operator]
            return _range(self.least, self.most), "raise it" if below else "lower it"
        if self.choices is not None and value != "" and not self._chosen(value):
            return ", ".join(json.dumps(one, ensure_ascii=False) for one in self.choices[:32]), "choose one of them"
        return None

    def _chosen(self, value: JsonValue) -> bool:
        choices = self.choices or ()
        if any(same(value, one) for one in choices):
            return True
        return isinstance(value, list) and all(any(same(item, one) for one in choices) for item in value)


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _within(value: JsonValue, least: float | None, most: float | None) -> bool:
    number = float("nan") if not isinstance(value, int | float) else value
    return (least is None or number >= least) and (most is None or number <= most)


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"


def parse_override_spec(text: str, recipe: str, problems: Problems) -> dict[str, Parameter]:
    """The parameters in the JSON of an override specification, by name. `recipe` chooses among conditional limits."""
    name = "recipe.override_spec"
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_MAX:
        problems.state(name, f"{size:,} bytes", f"allowed: at most {TEXT_MAX:,}")
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        problems.state(name, "too many levels of nesting", "flatten it")
        return {}
    except json.JSONDecodeError as error:
        problems.state(name, f"line {error.lineno}, column {error.colno}: {error.msg}", "correct the JSON")
        return {}
    except ValueError as error:
        problems.state(name, str(error)[:200], "correct the JSON")
        return {}
    if not isinstance(found, dict) or len(found) > _NAMES_MAX:
        words = kind_of(found) if not isinstance(found, dict) else f"{len(found):,} parameters"
        problems.state(name, f"found {words}", f"write a mapping of at most {_NAMES_MAX:,} names to mappings")
        return {}
    return {key: _parameter(key, entry, recipe, problems) for key, entry in found.items() if not key.startswith("_")}


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        message = f"the name {twice[:64]!r} appears twice"
        raise ValueError(message)
    return found


def _refuse_constant(text: str) -> float:
    message = f"{text} is no number of JSON"
    raise ValueError(message)


def _parameter(name: str, entry: JsonValue, recipe: str, problems: Problems) -> Parameter:
    if not isinstance(entry, dict):
        return Parameter(name, default=entry)
    entry = _conditional(entry, recipe)
    place = f"recipe.override_spec.{name[:64]}"

    def number(key: str) -> float | None:
        value = entry.get(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)):
            return value
        problems.state(f"{place}.{key}", f"found {kind_of(value)}", "write a number")
        return None

    choices = entry.get("enum")
    if choices is not None and not isinstance(choices, list):
        problems.state(f"{place}.enum", f"found {kind_of(choices)}", "write a list")
        choices = None
    kind = entry.get("type")
    return Parameter(
        name,
        default=entry.get("default"),
        required=entry.get("required") is True,
        type=kind if isinstance(kind, str) else "",
        least=number("min"),
        most=number("max"),
        choices=None if choices is None else tuple(choices),
    )


def _conditional(entry: dict[str, JsonValue], recipe: str) -> dict[str, JsonValue]:
    """The entry with the limits of this recipe: {enum: {Name: {RECIPE: [...], default: [...]}}}, or without `Name`."""
    conditions = entry.get(_CONDITIONS)
    if not isinstance(conditions, dict):
        return entry
    chosen: dict[str, JsonValue] = {}
    for key in _CONDITIONAL:
        cases = conditions.get(key)
        cases = cases.get(_BY_NAME, cases) if isinstance(cases, dict) else None
        if isinstance(cases, dict) and (case := next((name for name in (recipe, _OTHERWISE) if name in cases), None)):
            chosen[key] = cases[case]
    return {**entry, **chosen}
