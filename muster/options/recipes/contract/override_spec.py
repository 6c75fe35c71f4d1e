"""The override specification of a recipe: what each of its parameters may be, as SageMaker Hub describes it in JSON."""

from __future__ import annotations

import json
import math

from pydantic import Field, JsonValue

from muster.contract.answer_values import strict_json
from muster.contract.document import Document
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


class SpecifiedValue(Document):
    """What an override specification says about a value."""

    name: str
    type: str | None = Field(default=None, description="such as `float`, `integer`, `string`; null: any")
    required: bool = Field(default=False, description="whether it must have a value")
    default: JsonValue = Field(default=None, description="null: none")
    min: int | float | None = Field(default=None, description="null: any")
    max: int | float | None = Field(default=None, description="null: any")
    enum: tuple[JsonValue, ...] = Field(default=(), description="the only values that it may have; empty: any")
    description: str = ""

    def mistake(self, value: JsonValue) -> tuple[str, str] | None:
        """What is allowed and what to do, if the value is wrong. The default is right, and so is none."""
        if value is None or same(value, self.default):
            return None
        words, types = _TYPES.get((self.type or "").lower(), ("", ()))
        if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
            return words, f"write {words}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.min is not None and value < self.min:
                return limits(self), "raise it"
            if self.max is not None and value > self.max:
                return limits(self), "lower it"
        if self.enum and value != "" and not self._chosen(value):
            return ", ".join(json.dumps(one, ensure_ascii=False) for one in self.enum[:32]), "choose one of them"
        return None

    def _chosen(self, value: JsonValue) -> bool:
        if any(same(value, one) for one in self.enum):
            return True
        return isinstance(value, list) and all(any(same(item, one) for one in self.enum) for item in value)


def limits(of: SpecifiedValue) -> str:
    """The numbers that a value may be, in words; an empty text for any."""
    if of.min is not None and of.max is not None:
        return f"{of.min} to {of.max}"
    return f"at least {of.min}" if of.min is not None else f"at most {of.max}" if of.max is not None else ""


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def parse_override_spec(
    text: str, recipe: str, problems: Problems, *, is_own: bool = True
) -> dict[str, SpecifiedValue]:
    """The parameters in the JSON of an override specification, by name. `recipe` chooses among conditional limits.

    The last of two values with one name counts where the user cannot correct it: it is not their own, but a hub's.
    """
    name = "recipe.override_spec"
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_MAX:
        problems.state(name, f"{size:,} bytes", f"allowed: at most {TEXT_MAX:,}")
        return {}
    try:
        found = strict_json(text, unique=is_own)
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
    return {key: _specified(key, entry, recipe, problems) for key, entry in found.items() if not key.startswith("_")}


def _specified(name: str, entry: JsonValue, recipe: str, problems: Problems) -> SpecifiedValue:
    if not isinstance(entry, dict):
        return SpecifiedValue.model_construct(name=name, default=entry)
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
    kind, words = entry.get("type"), entry.get("description")
    # All of it is looked at already, and a default may be deeper than pydantic looks.
    return SpecifiedValue.model_construct(
        name=name,
        type=kind if kind and isinstance(kind, str) else None,
        required=entry.get("required") is True,
        default=entry.get("default"),
        min=number("min"),
        max=number("max"),
        enum=tuple(choices or ()),
        description=words if isinstance(words, str) else "",
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
