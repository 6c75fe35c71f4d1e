"""Interpolations of a merged recipe: `${a.b}`, `${.sibling}`, `${oc.select:a.b,default}`, arithmetic.

OmegaConf reads the text; what it refers to is looked up here, one value after the other, so that every problem is found
and nothing outside of the recipe can be read. Arithmetic takes numbers only. And everything is bounded: an
interpolation that repeats a part of the recipe counts as often as it repeats it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from pydantic import JsonValue

from muster.contract.spec.private_values import kind_of
from muster.options.recipes.contract.document_values import copied, value_at
from muster.options.recipes.contract.recipe_problems import Problems
from muster.options.recipes.contract.recipe_text import DEPTH_MAX, NODES_MAX, TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import Path

_GRAMMAR_MAX = 32_768  # characters that OmegaConf reads, a hundred microseconds each; public recipes have some hundred
_EVALUATED_MAX = 8_388_608  # characters of all texts with interpolations that are evaluated, and of what they give
_TEXT_MAX = 262_144
_NUMBER_END = 10**400
_CYCLE_SHOWN = 8
_NAME_SHOWN = 64

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
_ARITHMETIC: Mapping[str, tuple[int | None, Callable[[list[float]], float]]] = {
    "multiply": (2, lambda of: of[0] * of[1]),
    "divide_ceil": (2, lambda of: math.ceil(of[0] / of[1])),
    "divide_floor": (2, lambda of: math.floor(of[0] / of[1])),
    "add": (None, sum),
}
_RESOLVERS = ", ".join([*_ARITHMETIC, "oc.create", "oc.select"])
_ESCAPE = r"for ${ as plain text, write \${"
# Nearly all interpolations are so simple that OmegaConf is not needed.
_SIMPLE = re.compile(r"\$\{(\.*[A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
_PARTS = re.compile(r"\.([^.\[]*)|\[(.*?)\]")
_Holder = dict[str, JsonValue] | list[JsonValue]


class Literal(str):
    """Text in which nothing is an interpolation."""

    __slots__ = ()


def literal(value: JsonValue) -> JsonValue:
    """A copy of a value, with sorted names, in which no text is an interpolation."""
    return copied(value, Literal, in_order=True)


@dataclass(frozen=True)
class Fault:
    """A value that cannot be computed: where, what was found, what to do."""

    path: Path
    found: str
    remedy: str


class _FailedError(Exception):
    def __init__(self, found: str, remedy: str, path: Path | None = None) -> None:
        super().__init__(found)
        self.found, self.remedy, self.path = found, remedy, path


class _NotFoundError(Exception):
    def __init__(self, passed: Sequence[str], holder: JsonValue) -> None:
        super().__init__()
        self.passed, self.holder = passed, holder


class _MissingError(Exception):
    """A value refers to one that is still to be set."""


class _NeededError(Exception):
    """A value needs another one first."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place


@dataclass(frozen=True)
class Interpolated:
    """A document without interpolations.

    Args:
        document: the values.
        faults: what cannot be computed.
        used: the names of `inputs` that were referred to.
    """

    document: dict[str, JsonValue]
    faults: list[Fault]
    used: frozenset[str]


def interpolated(document: dict[str, JsonValue], inputs: Mapping[str, JsonValue]) -> Interpolated:
    """The document with the values in place of all interpolations.

    Public recipes refer to values of the launcher's own settings, such as `${base_results_dir}`: a name that the
    document does not have at its top may be one of `inputs`, whose texts are not interpolated.

    A path that begins with one of ROOTS, which the document does not have, is a path of the document.
    """
    run = _Interpolation(document, inputs)
    result = cast("dict[str, JsonValue]", run.copy(document))
    return Interpolated(result, list(run.faults.values()), frozenset(run.given))


def referred_part(document: dict[str, JsonValue], path: Path) -> dict[str, JsonValue] | list[JsonValue] | None:
    """A copy of what an interpolation stands for, with its own interpolations; None where it is a scalar or nothing."""
    try:
        found = _Interpolation(document, {}).value_of(path)
    except (_FailedError, _MissingError):
        return None
    return copied(found) if isinstance(found, dict | list) else None  # type: ignore[return-value]  # of the same type


class _Interpolation:
    """One resolution of a document."""

    def __init__(self, document: dict[str, JsonValue], inputs: Mapping[str, JsonValue]) -> None:
        self._document, self._inputs = document, inputs
        self.given: dict[str, JsonValue] = {}  # those of the inputs that were referred to
        self.faults: dict[tuple[object, ...], Fault] = {}
        self._places: dict[int, Path] = {}  # of the document's mappings and lists, by their ids
        self._live: set[Path] = set()  # the places of interpolations
        self._known: dict[Path, JsonValue | Exception] = {}
        self._read: set[str] = set()  # what OmegaConf has read
        self._around: list[int] = []  # mappings and lists that are being copied
        self._problems = Problems()  # of which the first get the nearest name
        self._nodes = self._characters = self._evaluated = self._grammar = 0
        self._places[id(document)] = ()
        pending: list[_Holder] = [document]
        while pending:
            holder = pending.pop()
            above = self._places[id(holder)]
            for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
                # A path for each scalar would be most of the work: recipes are interpolated many times.
                if isinstance(item, dict | list):
                    self._places[id(item)] = (*above, key)
                    pending.append(item)
                elif type(item) is str and "${" in item:
                    self._live.add((*above, key))

    def copy(self, value: _Holder) -> JsonValue:
        """The copy of a mapping or list in which every interpolation is replaced."""
        self._around.append(id(value))
        found: JsonValue
        if isinstance(value, dict):
            found = {key: self._copy_item(self._place(value, key), item) for key, item in value.items()}
        else:
            found = [self._copy_item(self._place(value, index), item) for index, item in enumerate(value)]
        self._around.pop()
        return found

    def _place(self, holder: _Holder, key: str | int) -> Path | None:
        """Where a value is; None for one that a resolver has made."""
        above = self._places.get(id(holder))
        return None if above is None else (*above, key)

    def _copy_item(self, place: Path | None, item: JsonValue) -> JsonValue:
        try:
            self._nodes += 1
            if self._nodes > NODES_MAX:
                self._fail(f"more than {NODES_MAX:,} values", "repeat less by interpolations", ())
            if place in self._live:
                item = self.value_of(place)
                if id(item) in self._around and isinstance(item, dict | list):
                    self._fail("an interpolation of what it lies in", "refer to a smaller part")
            if isinstance(item, dict | list):
                if len(self._around) >= DEPTH_MAX:
                    remedy = "flatten it, or repeat less by interpolations"
                    self._fail(f"more than {DEPTH_MAX} levels of nesting", remedy)
                return self.copy(item)
            if isinstance(item, str):
                self._characters += len(item)
                if self._characters > TEXT_MAX:
                    self._fail(f"more than {TEXT_MAX:,} bytes when it is resolved", "keep data in S3", ())
                return str(item)
        except _FailedError as failed:
            # What depends on a faulty value is not reported a second time.
            path = (place or ()) if failed.path is None else failed.path
            self.faults.setdefault((path, failed.found), Fault(path, failed.found, failed.remedy))
            return None
        except _MissingError:
            return MISSING
        return item

    # The value of one interpolation. Mappings and lists are those of the document, not copies.

    def value_of(self, place: Path) -> JsonValue:
        """The value at a place. Without recursion: however long a chain is, its first value is computed first."""
        waiting = {} if place in self._known else {place: None}
        while waiting:
            one = next(reversed(waiting))
            outcome: JsonValue | Exception
            try:
                outcome = self._evaluate(one)
            except _NeededError as needed:
                if needed.place not in waiting:
                    waiting[needed.place] = None
                    continue
                places = list(waiting)
                outcome = self._cycle(places[places.index(needed.place) :])
            except (_FailedError, _MissingError) as error:
                outcome = error
                if isinstance(error, _FailedError) and error.path is None:
                    error.path = one
            self._known[one] = outcome
            del waiting[one]
        found = self._known[place]
        if isinstance(found, Exception):
            raise found
        return found

    def _evaluate(self, place: Path) -> JsonValue:
        text = str(value_at(self._document, *place))
        value: JsonValue
        simple = _SIMPLE.split(text) if "\\" not in text and len(_SIMPLE.findall(text)) == text.count("${") else []
        self._count(len(text))
        if len(simple) == 3 and not simple[0] and not simple[2]:
            return self._refer(simple[1], place)
        if simple:
            parts = [self._refer(part, place) if index % 2 else part for index, part in enumerate(simple)]
            if wrong := next((one for one in parts if isinstance(one, dict | list)), None):
                kind = "a mapping" if isinstance(wrong, dict) else "a list"
                self._fail(f"{kind} as a part of a text", "refer to one of its values")
            value = "".join(map(str, parts))
        else:
            value = self._by_grammar(text, place)
        if isinstance(value, str):
            if len(value) > _TEXT_MAX:
                self._fail("a text that interpolations make too long", f"allowed: {_TEXT_MAX:,} characters")
            self._count(len(value))
        return self._number(value)

    def _by_grammar(self, text: str, place: Path) -> JsonValue:
        from muster.options.recipes.contract.expressions.omegaconf_text import UnreadableTextError, read_text  # noqa: PLC0415

        if text not in self._read:
            self._read.add(text)
            self._grammar += len(text)
        if self._grammar > _GRAMMAR_MAX:
            allowed = f"allowed: {_GRAMMAR_MAX:,} characters of texts with them"
            self._fail("more interpolations than can be read", f"write some values out; {allowed}")
        try:
            value: JsonValue = read_text(
                text, lambda key: self._refer(key, place), lambda name, values: self._call(name, values, place)
            )
            return value
        except UnreadableTextError as error:
            remedy = "refer to one of its values" if "part of" in str(error) else _ESCAPE
            self._fail(str(error), remedy)
        except ValueError:  # Python converts at most 4,300 digits
            self._fail("a number of too many digits", "use smaller numbers")

    def _count(self, characters: int) -> None:
        self._evaluated += characters
        if self._evaluated > _EVALUATED_MAX:
            self._fail("more interpolations than can be computed", "write some values out")

    def _fail(self, found: str, remedy: str, path: Path | None = None) -> NoReturn:
        raise _FailedError(found, remedy, path)

    # References.

    def _refer(self, key: str, place: Path) -> JsonValue:
        try:
            return self._select(key, place)
        except _NotFoundError as error:
            missing = ".".join(error.passed)
            near = self._problems.nearest(error.passed[-1], error.holder if isinstance(error.holder, dict) else ())
            name = missing[:_NAME_SHOWN]
            given = f"set {name} under `inputs`" if len(error.passed) == 1 else f"add {name}"
            remedy = f"{given}, or set this value itself"
            if near is not None:
                remedy = f"did you mean {'.'.join([*error.passed[:-1], near])}?"
            self._fail(f"${{{key}}}, but there is no {missing}", remedy)

    def _select(self, key: str, place: Path) -> JsonValue:
        """The value at a path."""
        rest = key.lstrip(".")
        up = len(key) - len(rest)
        if up > len(place):
            self._fail(f"{key[:_NAME_SHOWN]}, which leads out of the recipe", "correct the path")
        found = value_at(self._document, *place[:-up]) if up else self._document
        dotted = rest if rest.startswith("[") else f".{rest}"
        parts = [one[1] if one[1] is not None else one[2] for one in _PARTS.finditer(dotted)]
        if rest == key and parts[0] in ROOTS and parts[0] not in self._document and parts[0] not in self._inputs:
            parts = parts[1:]
        for index, part in enumerate(parts):
            found = self._item(found, part, parts[: index + 1])
        if found == MISSING and isinstance(found, str):
            raise _MissingError
        return found

    def _item(self, holder: JsonValue, part: str, passed: Sequence[str]) -> JsonValue:
        """What a mapping or list has under a part of a path. What is an interpolation itself, is computed."""
        key: str | int = part
        if isinstance(holder, str) and holder == MISSING:
            raise _MissingError
        if isinstance(holder, list):
            if not re.fullmatch(r"-?[0-9]{1,9}", part):
                self._fail(f"{part[:_NAME_SHOWN]}, which is no index of a list", "correct the path")
            if not -len(holder) <= int(part) < len(holder):
                raise _NotFoundError(passed, holder)
            key = int(part) % len(holder)
        elif not isinstance(holder, dict) or part not in holder:
            if holder is not self._document or len(passed) > 1 or part not in self._inputs:
                raise _NotFoundError(passed, holder)
            # Many values may refer to one long text: there is one copy of it.
            if part not in self.given:
                self.given[part] = literal(self._inputs[part])
            return self.given[part]
        place = self._place(holder, key)
        if place not in self._live:
            return holder[key]  # type: ignore[index]
        if place not in self._known:
            raise _NeededError(place)
        return self.value_of(place)

    # Resolvers.

    def _call(self, name: str, values: Sequence[JsonValue], place: Path) -> JsonValue:
        if name in _OUTSIDE:
            self._fail(f"${{{name}:…}}, which is not allowed", _OUTSIDE[name])
        if name in _ARITHMETIC:
            return self._arithmetic(name, values)
        if name == "oc.create":
            if len(values) == 1 and (values[0] is None or isinstance(values[0], dict | list)):
                return values[0]
            self._fail("${oc.create:…} without a mapping or a list", "text is not read as YAML; write {a: 1}")
        if name != "oc.select":
            self._fail(f"an unknown resolver, {name[:_NAME_SHOWN]}", f"the resolvers are {_RESOLVERS}")
        if not 1 <= len(values) <= 2 or not isinstance(values[0], str):
            self._fail("${oc.select:…} without a path", "write ${oc.select:a.b} or ${oc.select:a.b,default}")
        try:
            return self._select(values[0], place)
        except (_NotFoundError, _MissingError):
            return values[1] if len(values) == 2 else None

    def _arithmetic(self, name: str, values: Sequence[JsonValue]) -> JsonValue:
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        count, compute = _ARITHMETIC[name]
        wanted = "it takes numbers" if count is None else f"it takes {count} numbers"
        if len(numbers) < len(values):
            wrong = next(value for value in values if isinstance(value, bool) or not isinstance(value, int | float))
            self._fail(f"{kind_of(wrong)} in ${{{name}:…}}", wanted)
        if count is not None and len(values) != count:
            self._fail(f"${{{name}:…}} of {len(values)} values", wanted)
        try:
            return self._number(compute(numbers))
        except ZeroDivisionError:
            self._fail(f"a division by zero in ${{{name}:…}}", "correct the second number")
        except (OverflowError, ValueError):
            self._fail(f"a result of ${{{name}:…}} that is too large", "use smaller numbers")

    def _number(self, value: JsonValue) -> JsonValue:
        if isinstance(value, float) and not math.isfinite(value):
            self._fail(f"{value} as a result", "JSON and YAML cannot hold it; use finite numbers")
        if isinstance(value, int) and abs(value) >= _NUMBER_END:
            self._fail("a result of more than 400 digits", "use smaller numbers")
        return value

    def _cycle(self, cycle: list[Path]) -> _FailedError:
        # From wherever it is entered, a cycle is the same one.
        begin = min(range(len(cycle)), key=lambda index: [str(part) for part in cycle[index]])
        cycle = cycle[begin:] + cycle[:begin]
        shown = [".".join(map(str, one)) for one in cycle[:_CYCLE_SHOWN]]
        middle = [*shown[: _CYCLE_SHOWN - 1], "…"] if len(cycle) > _CYCLE_SHOWN else shown
        found = f"a cycle of interpolations: {' -> '.join([*middle, shown[0]])}"
        return _FailedError(found, "break it: write a value", cycle[0])
