"""Interpolations of a merged recipe: `${a.b}`, `${.sibling}`, `${oc.select:a.b,default}`, arithmetic.

Values mean what they mean in OmegaConf, with three differences. Nothing outside of the recipe can be read. Arithmetic
takes numbers only. And everything is bounded: an interpolation that repeats a part of the recipe counts as often as it
repeats it.
"""

from __future__ import annotations

import copy
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from muster.contract.recipe.expressions.interpolation_grammar import (
    Call,
    Constant,
    Element,
    InvalidInterpolationError,
    Items,
    Pairs,
    Reference,
    Text,
    parse_interpolation,
)
from muster.contract.recipe.recipe_text import DEPTH_MAX, NODES_MAX, TEXT_MAX
from muster.contract.recipe.resolved_recipe import Path

CHAIN_MAX = 80
"""Of interpolations that lie in each other or depend on each other. Python's own limit is some hundred."""
_CHARACTERS_MAX = 4_194_304  # of all texts that interpolations make
_TEXT_MAX = 262_144
_NUMBER_END = 10**400
_CYCLE_SHOWN = 8
_NAME_SHOWN = 64
_NEAREST_MAX, _KNOWN_MAX = 16, 1_024
_EVALUATIONS_MAX = 250_000
_LONG = 4_096
_COMMON = 10**18
# Bytes of YAML: of a value with its indentation, colon, quotes and line, and of a character, which may be an escape.
_NODE_MOST, _CHARACTER_MOST = 2 * DEPTH_MAX + 32, 12

MISSING = "???"
"""OmegaConf's mark of a value that is still to be set."""

ROOTS = frozenset({"recipes", "training"})
"""Keys below which a recipe may expect itself: the launcher of the public recipes puts it there."""

_OUTSIDE = {
    "oc.env": "it would read the environment of the program that resolves the recipe; write the value, or use `inputs`",
    "oc.decode": "it would read text as values; write the value itself",
    "oc.deprecated": "it only warns; refer to the new name: ${new.name}",
    "oc.dict.keys": "the keys of a mapping are not known before the recipe is merged; write the list",
    "oc.dict.values": "the values of a mapping are not known before the recipe is merged; write the list",
}


class Literal(str):
    """Text in which nothing is an interpolation."""

    __slots__ = ()


def literal(value: JsonValue) -> JsonValue:
    """A copy of a value, with sorted names, in which no text is an interpolation."""
    if isinstance(value, str):
        return Literal(value)
    if isinstance(value, dict):
        return {key: literal(item) for key, item in sorted(value.items())}
    return [literal(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Fault:
    """A value that cannot be computed: where, what was found, what to do."""

    path: Path
    found: str
    remedy: str


class _FailedError(Exception):
    def __init__(self, place: _Place, found: str, remedy: str) -> None:
        super().__init__(found)
        self.place, self.found, self.remedy = place, found, remedy


class _NotFoundError(Exception):
    def __init__(self, passed: Sequence[str], holder: JsonValue) -> None:
        super().__init__()
        self.passed, self.holder = passed, holder


class _NoPlaceError(Exception):
    """A path that cannot be one. It is no reason for a default."""

    def __str__(self) -> str:
        return ", ".join(self.args)


class _RefersToMissingError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Place:
    """A value in the recipe: the mapping or list that holds it, and its key or index there."""

    parent: dict[str, JsonValue] | list[JsonValue]
    key: str | int


@dataclass(frozen=True, slots=True)
class _Known:
    """The value of an interpolation, and how many evaluations in each other it took."""

    value: JsonValue
    height: int


@dataclass(frozen=True)
class Interpolated:
    """A document without interpolations.

    Args:
        document: the values.
        faults: what cannot be computed.
        used: the names of `inputs` that were referred to.
        yaml_most: bytes that its YAML has at most.
    """

    document: dict[str, JsonValue]
    faults: list[Fault]
    used: frozenset[str]
    yaml_most: int


def interpolated(document: dict[str, JsonValue], inputs: Mapping[str, JsonValue]) -> Interpolated:
    """The document with the values in place of all interpolations.

    Public recipes refer to values of the launcher's own settings, such as `${base_results_dir}`: a name that the
    document does not have at its top may be one of `inputs`, whose texts are not interpolated.

    A path that begins with one of ROOTS, which the document does not have, is a path of the document.
    """
    return _Resolution(document, inputs).run()


class _Resolution:
    """One resolution of a document."""

    def __init__(self, document: dict[str, JsonValue], inputs: Mapping[str, JsonValue]) -> None:
        self._document, self._inputs = document, inputs
        self._given: dict[str, JsonValue] = {}  # those of the inputs that were referred to
        self._parents: dict[int, _Place] = {}
        self._known: dict[tuple[int, str | int], _Known] = {}
        self._parsed: dict[str, Element] = {}
        self._running: list[_Place] = []  # interpolations, each of which waits for the next one
        self._copied: list[int] = []  # mappings and lists that are being copied
        self._depth = 0  # of evaluations in each other
        self._height = 0  # of the evaluations that the running one has made
        self._evaluations = 0
        self._searched = 0
        self._long: dict[int, bool] = {}  # whether a long text of the document is an interpolation
        self._nodes = 0
        self._copied_characters = 0
        self._other_characters = 0  # of keys and long numbers
        self._is_full = False
        self._characters = 0
        self._faults: dict[tuple[object, ...], Fault] = {}

    def run(self) -> Interpolated:
        """The whole document."""
        self._find_parents()
        result = self._copy(self._document)
        document = result if isinstance(result, dict) else {}
        most = self._nodes * _NODE_MOST + (self._copied_characters + self._other_characters) * _CHARACTER_MOST
        return Interpolated(document, list(self._faults.values()), frozenset(self._given), most)

    def value_of(self, place: _Place, text: str) -> JsonValue:
        """The value of one interpolation."""
        self._find_parents()
        return self._value_at(place, text)

    def _find_parents(self) -> None:
        pending: list[dict[str, JsonValue] | list[JsonValue]] = [self._document]
        while pending:
            holder = pending.pop()
            items: Iterator[tuple[str | int, JsonValue]]
            items = iter(holder.items()) if isinstance(holder, dict) else iter(enumerate(holder))
            for key, item in items:
                if isinstance(item, dict | list):
                    self._parents[id(item)] = _Place(holder, key)
                    pending.append(item)

    # The copy of a value in which every interpolation is replaced.

    def _copy(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict | list):
            return value
        self._copied.append(id(value))
        copied: JsonValue
        if isinstance(value, dict):
            self._other_characters += sum(map(len, value))
            copied = {key: self._copy_item(value, key, item) for key, item in value.items()}
        else:
            copied = [self._copy_item(value, index, item) for index, item in enumerate(value)]
        self._copied.pop()
        return copied

    def _copy_item(self, parent: dict[str, JsonValue] | list[JsonValue], key: str | int, item: JsonValue) -> JsonValue:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            if self._nodes == NODES_MAX + 1:
                self._add(
                    Fault(self._path_to(parent), f"more than {NODES_MAX:,} values", "repeat less by interpolations")
                )
            return None
        kind = type(item)
        if kind is dict or kind is list:
            return self._copy_part(item, _Place(parent, key))
        if kind is str and "${" in item:  # type: ignore[operator]
            return self._copy_interpolated(_Place(parent, key), str(item))
        return self._copy_scalar(item)

    def _copy_interpolated(self, place: _Place, text: str) -> JsonValue:
        self._height = 0
        try:
            value = self._value_at(place, text)
        except _FailedError as failed:
            self._fail(failed)
            return None
        except _RefersToMissingError:
            return MISSING
        if isinstance(value, dict | list):
            if id(value) in self._copied:
                self._add(Fault(self._path_of(place), "an interpolation of what it lies in", "refer to a smaller part"))
                return None
            return self._copy_part(value, place)
        return self._copy_scalar(value)

    def _copy_scalar(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, str):
            if isinstance(value, int) and not -_COMMON < value < _COMMON:
                self._other_characters += value.bit_length() // 3
            return value
        self._copied_characters += len(value)
        if self._copied_characters <= TEXT_MAX:
            return str(value)
        if not self._is_full:
            self._is_full = True
            found = f"more than {TEXT_MAX:,} bytes when it is resolved"
            self._add(Fault((), found, "keep data in S3"))
        return None

    def _copy_part(self, value: JsonValue, place: _Place) -> JsonValue:
        """The copy of a mapping or list that lies in others."""
        if len(self._copied) < DEPTH_MAX:
            return self._copy(value)
        found = f"more than {DEPTH_MAX} levels of nesting"
        self._add(Fault(self._path_of(place), found, "flatten it, or repeat less by interpolations"))
        return None

    # The value of one interpolation. Mappings and lists are those of the document, not copies.

    def _value_at(self, place: _Place, text: str) -> JsonValue:
        known = self._known.get((id(place.parent), place.key))
        if known is not None:
            # Whether a chain is too long must not depend on where it was entered first.
            if self._depth + known.height > CHAIN_MAX:
                raise self._too_long(self._running[0])
            self._height = max(self._height, known.height)
            return known.value
        if any(one.parent is place.parent and one.key == place.key for one in self._running):
            raise self._cycle(place)
        outer, self._height = self._height, 0
        self._running.append(place)
        try:
            value = self._evaluate(self._parse(place, text), place)
        finally:
            self._running.pop()
        self._known[id(place.parent), place.key] = _Known(value, self._height)
        self._height = max(outer, self._height)
        return value

    def _parse(self, place: _Place, text: str) -> Element:
        tree = self._parsed.get(text)
        if tree is None:
            try:
                tree = self._parsed[text] = parse_interpolation(text)
            except InvalidInterpolationError as error:
                raise _FailedError(place, f"an interpolation that cannot be read: {error}", _ESCAPE) from None
        return tree

    def _evaluate(self, element: Element, place: _Place) -> JsonValue:
        if self._depth >= CHAIN_MAX:
            raise self._too_long(self._running[0])
        self._evaluations += 1
        if self._evaluations > _EVALUATIONS_MAX:
            raise _FailedError(self._running[0], "more interpolations than can be computed", "write some values out")
        outer, self._height = self._height, 0
        self._depth += 1
        try:
            return self._evaluate_part(element, place)
        finally:
            self._depth -= 1
            self._height = max(outer, self._height + 1)

    def _evaluate_part(self, element: Element, place: _Place) -> JsonValue:
        value: JsonValue
        match element:
            case Constant(found):
                value = Literal(found) if isinstance(found, str) else self._number(found, place)
            case Reference():
                value = self._refer(element, place)
            case Call(name, arguments):
                value = self._call(name, arguments, place)
            case Text(parts, quoted):
                values = [part if isinstance(part, str) else self._evaluate(part, place) for part in parts]
                value = values[0] if len(values) == 1 and not quoted else self._joined(values, place)
            case Items(items):
                value = [self._evaluate(item, place) for item in items]
            case Pairs(pairs):
                value = {key: self._evaluate(item, place) for key, item in pairs}
        return value

    def _joined(self, values: Sequence[JsonValue], place: _Place) -> str:
        texts: list[str] = []
        for value in values:
            if isinstance(value, dict | list):
                kind = "a mapping" if isinstance(value, dict) else "a list"
                raise _FailedError(place, f"{kind} as a part of a text", "refer to one of its values")
            texts.append(str(value))
        text = "".join(texts)
        self._characters += len(text)
        if len(text) > _TEXT_MAX or self._characters > _CHARACTERS_MAX:
            raise _FailedError(place, "a text that interpolations make too long", f"allowed: {_TEXT_MAX:,} characters")
        return Literal(text)

    # References.

    def _refer(self, reference: Reference, place: _Place) -> JsonValue:
        key = ""
        for part in reference.parts:
            value = part if isinstance(part, str) else self._evaluate(part, place)
            if not isinstance(value, str):
                raise _FailedError(place, "an interpolation as a part of a path that is no text", "refer to a text")
            key += value
        try:
            return self._select(key, place)
        except _NotFoundError as error:
            raise self._not_found(place, key, error) from None
        except _NoPlaceError as error:
            raise _FailedError(place, str(error), "correct the path") from None

    def _select(self, key: str, place: _Place) -> JsonValue:
        """The value at a path; MISSING is found as such."""
        found: JsonValue = place.parent
        rest = key
        if key.startswith("."):
            rest = key[1:]
            while rest.startswith("."):
                rest = rest[1:]
                above = self._parents.get(id(found))
                if above is None:
                    raise _NoPlaceError(key[:_NAME_SHOWN], "which leads out of the recipe")
                found = above.parent
            parts = _split(rest)
        else:
            found = self._document
            parts = _split(rest)
            if parts[0] in ROOTS and parts[0] not in self._document and parts[0] not in self._inputs:
                parts = parts[1:]
        passed: list[str] = []
        for part in parts:
            passed.append(part)
            found = self._item(found, part, passed)
        if found == MISSING and isinstance(found, str):
            raise _RefersToMissingError
        return found

    def _item(self, holder: JsonValue, part: str, passed: Sequence[str]) -> JsonValue:
        """What a mapping or list has under a part of a path. What is an interpolation itself, is computed."""
        key: str | int
        if isinstance(holder, dict):
            if part not in holder:
                if holder is self._document and len(passed) == 1 and part in self._inputs:
                    # Many values may refer to one long text: there is one copy of it.
                    if part not in self._given:
                        self._given[part] = literal(self._inputs[part])
                    return self._given[part]
                raise _NotFoundError(passed, holder)
            key = part
            value = holder[part]
        elif isinstance(holder, list):
            if not re.fullmatch(r"-?[0-9]{1,9}", part):
                raise _NoPlaceError(part[:_NAME_SHOWN], "which is no index of a list")
            if not -len(holder) <= int(part) < len(holder):
                raise _NotFoundError(passed, holder)
            key = int(part) % len(holder)
            value = holder[key]
        elif isinstance(holder, str) and holder == MISSING:
            raise _RefersToMissingError
        else:
            raise _NotFoundError(passed, holder)
        if type(value) is str and self._is_interpolation(value):
            return self._value_at(_Place(holder, key), value)
        return value

    def _is_interpolation(self, text: str) -> bool:
        if len(text) < _LONG:
            return "${" in text
        # Many values may refer to one long text.
        if id(text) not in self._long:
            self._long[id(text)] = "${" in text
        return self._long[id(text)]

    # Resolvers.

    def _call(self, name: str, arguments: tuple[Element, ...], place: _Place) -> JsonValue:
        if name in _OUTSIDE:
            raise _FailedError(place, f"${{{name}:…}}, which is not allowed", _OUTSIDE[name])
        if name == "oc.select":
            return self._call_select([self._evaluate(one, place) for one in arguments], place)
        if name not in _ARITHMETIC and name != "oc.create":
            allowed = ", ".join([*_ARITHMETIC, "oc.create", "oc.select"])
            raise _FailedError(place, f"an unknown resolver, {name[:_NAME_SHOWN]}", f"the resolvers are {allowed}")
        values = [self._evaluate(one, place) for one in arguments]
        if name == "oc.create":
            if len(values) == 1 and (values[0] is None or isinstance(values[0], dict | list)):
                return values[0]
            raise _FailedError(
                place, "${oc.create:…} without a mapping or a list", "text is not read as YAML; write {a: 1}"
            )
        return self._arithmetic(name, values, place)

    def _call_select(self, values: Sequence[JsonValue], place: _Place) -> JsonValue:
        if not 1 <= len(values) <= 2 or not isinstance(values[0], str):
            raise _FailedError(
                place, "${oc.select:…} without a path", "write ${oc.select:a.b} or ${oc.select:a.b,default}"
            )
        try:
            return self._select(values[0], place)
        except (_NotFoundError, _RefersToMissingError):
            return values[1] if len(values) == 2 else None
        except _NoPlaceError as error:
            raise _FailedError(place, str(error), "correct the path") from None

    def _arithmetic(self, name: str, values: Sequence[JsonValue], place: _Place) -> JsonValue:
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        count, compute = _ARITHMETIC[name]
        if len(numbers) != len(values) or (count is not None and len(values) != count):
            wanted = "numbers" if count is None else f"{count} numbers"
            wrong = next((value for value in values if value not in numbers or isinstance(value, bool)), None)
            found = f"${{{name}:…}} of {len(values)} values" if len(numbers) == len(values) else _kind(wrong)
            raise _FailedError(place, f"{found} in ${{{name}:…}}" if wrong is not None else found, f"it takes {wanted}")
        try:
            return self._number(compute(numbers), place)
        except ZeroDivisionError:
            raise _FailedError(place, f"a division by zero in ${{{name}:…}}", "correct the second number") from None
        except (OverflowError, ValueError):
            raise _FailedError(place, f"a result of ${{{name}:…}} that is too large", "use smaller numbers") from None

    def _number(self, value: float | bool | None, place: _Place) -> JsonValue:
        if isinstance(value, float) and not math.isfinite(value):
            raise _FailedError(place, f"{value} as a result", "JSON and YAML cannot hold it; use finite numbers")
        if isinstance(value, int) and abs(value) >= _NUMBER_END:
            raise _FailedError(place, "a result of more than 400 digits", "use smaller numbers")
        return value

    # Problems.

    def _not_found(self, place: _Place, key: str, error: _NotFoundError) -> _FailedError:
        missing = ".".join(error.passed)
        self._searched += 1
        known = list(error.holder) if isinstance(error.holder, dict) and self._searched <= _NEAREST_MAX else []
        near = difflib.get_close_matches(error.passed[-1][:_NAME_SHOWN], known[:_KNOWN_MAX], n=1, cutoff=0.6)
        if near:
            remedy = f"did you mean {'.'.join([*error.passed[:-1], near[0]])}?"
        else:
            given = (
                f"set {missing[:_NAME_SHOWN]} under `inputs`"
                if len(error.passed) == 1
                else f"add {missing[:_NAME_SHOWN]}"
            )
            remedy = f"{given}, or set this value itself"
        return _FailedError(place, f"${{{key}}}, but there is no {missing}", remedy)

    def _fail(self, failed: _FailedError) -> None:
        # What depends on a faulty value is not reported a second time.
        self._add(Fault(self._path_of(failed.place), failed.found, failed.remedy))

    def _add(self, fault: Fault) -> None:
        self._faults.setdefault((fault.path, fault.found), fault)

    def _cycle(self, place: _Place) -> _FailedError:
        first = next(
            index for index, one in enumerate(self._running) if one.parent is place.parent and one.key == place.key
        )
        cycle = self._running[first:]
        names = [(self._path_of(one), one) for one in cycle]
        # From wherever it is entered, a cycle is the same one.
        begin = min(range(len(names)), key=lambda index: [str(part) for part in names[index][0]])
        names = names[begin:] + names[:begin]
        shown = [".".join(str(part) for part in path) for path, _ in names]
        middle = [*shown[: _CYCLE_SHOWN - 1], "…"] if len(shown) > _CYCLE_SHOWN else shown
        return _FailedError(
            names[0][1], f"a cycle of interpolations: {' -> '.join([*middle, shown[0]])}", "break it: write a value"
        )

    def _too_long(self, place: _Place) -> _FailedError:
        return _FailedError(
            place, f"more than {CHAIN_MAX} interpolations that depend on each other", "write some values out"
        )

    def _path_of(self, place: _Place) -> Path:
        return (*self._path_to(place.parent), place.key)

    def _path_to(self, holder: dict[str, JsonValue] | list[JsonValue]) -> Path:
        parts: list[str | int] = []
        above = self._parents.get(id(holder))
        while above is not None:
            parts.append(above.key)
            above = self._parents.get(id(above.parent))
        return tuple(reversed(parts))


_ESCAPE = r"for ${ as plain text, write \${"
_HEAD = re.compile(r"[^.\[]*")
_NEXT = re.compile(r"\.([^.\[]*)|\[(.*?)\]")


def _split(key: str) -> list[str]:
    """The parts of `a.b[0].c`."""
    head = _HEAD.match(key)
    begin = head.end() if head else 0
    parts = [key[:begin]] if begin or not key.startswith("[") else []
    while found := _NEXT.match(key, begin):
        parts.append(found[1] if found[1] is not None else found[2])
        begin = found.end()
    if begin < len(key):
        parts.append(key[begin:])
    return parts


def _kind(value: JsonValue) -> str:
    return {bool: "true or false", str: "text", type(None): "no value", Literal: "text"}.get(
        type(value), "a mapping or a list"
    )


_ARITHMETIC: Mapping[str, tuple[int | None, Callable[[list[float]], float]]] = {
    "multiply": (2, lambda of: of[0] * of[1]),
    "divide_ceil": (2, lambda of: math.ceil(of[0] / of[1])),
    "divide_floor": (2, lambda of: math.floor(of[0] / of[1])),
    "add": (None, sum),
}


def referred_part(document: dict[str, JsonValue], path: Path) -> dict[str, JsonValue] | list[JsonValue] | None:
    """A copy of what an interpolation stands for, with its own interpolations; None where it is a scalar or nothing."""
    holder: JsonValue = document
    for part in path[:-1]:
        holder = holder[part]  # type: ignore[index]
    if not isinstance(holder, dict | list):
        return None
    text = holder[path[-1]]  # type: ignore[index]
    try:
        found = _Resolution(document, {}).value_of(_Place(holder, path[-1]), str(text))
    except (_FailedError, _RefersToMissingError):
        return None
    return copy.deepcopy(found) if isinstance(found, dict | list) else None


def referred_mapping(document: dict[str, JsonValue], path: Path) -> dict[str, JsonValue] | None:
    """The same where it is a mapping; None for anything else."""
    found = referred_part(document, path)
    return found if isinstance(found, dict) else None
