"""Values in place of a recipe's own: where each belongs, and the merge.

A value is addressed by its path, nested or with dots; else by the name of a placeholder or parameter; else by the end
of one path, such as `optim.lr` or `lr`. What fits several places, or none, is refused: nothing is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.spec.recipe_reference import Origin
from muster.contract.text import some_of
from muster.options.recipes.contract.document_values import copied, everything_in, leaves, value_at
from muster.options.recipes.contract.expressions.interpolation import MISSING, Literal, referred_part
from muster.options.recipes.contract.recipe_problems import Problems, path_name
from muster.options.recipes.contract.recipe_problems import field as field_name
from muster.options.recipes.contract.resolved_recipe import Path

_SHOWN = 8
_SAME_MAX = 256
_REFERRING_MAX = 64
_DOTS_MAX = 64
_INDEX = re.compile(r"[0-9]{1,6}")


@dataclass
class Merged:
    """A recipe while values are put into it, and the source of every value that is not the base's."""

    document: dict[str, JsonValue]
    origin: Origin  # of what no other source has set
    origins: dict[Path, Origin]
    named: Mapping[str, list[Path]]  # where the value of each placeholder or parameter is
    embedded: frozenset[str] = frozenset()  # placeholders that are parts of texts
    fixed: Mapping[Path, str] = field(default_factory=dict)  # places that may not be changed, and what to do instead

    def origin_at(self, path: Path) -> Origin:
        """The source of the value at a path."""
        lengths = range(len(path), 0, -1)
        return next((self.origins[path[:length]] for length in lengths if path[:length] in self.origins), self.origin)


def merge(merged: Merged, values: dict[str, JsonValue], origin: Origin, problems: Problems) -> None:
    """Merge values that are addressed by path, by name, or by the end of a path; the user's recipe by its structure."""
    _Source(merged, origin, problems).merge(values)


class _Source:
    """The merge of one source. All of its values are placed before the first is merged: their order does not matter."""

    def __init__(self, merged: Merged, origin: Origin, problems: Problems) -> None:
        self._merged, self._origin, self._problems = merged, origin, problems
        self._by_name = origin is not Origin.FILE
        self._placed: dict[Path, JsonValue] = {}
        self._referring: list[Path] = []  # interpolations of which some values are replaced
        self._leaves: dict[str, list[Path]] | None = None  # by their last parts
        self._decided: dict[Path, Path] = {}  # the first place that may not be changed, by each place that holds it
        for path in merged.fixed:
            for length in range(1, len(path) + 1):
                self._decided.setdefault(path[:length], path)

    def merge(self, values: dict[str, JsonValue]) -> None:
        if self._origin is Origin.VALUE:
            names = self._merged.named.keys() | self._merged.embedded
            named = {key: item for key, item in values.items() if key in names}
            for key, item in sorted(named.items()):
                self._place_name(key, item)
            values = {key: item for key, item in values.items() if key not in named}
        self._assign(values, (), self._merged.document)
        paths = self._without_conflicts()
        parts: dict[Path, list[Path]] = {(): [], **{above: [] for above in sorted(self._referring, key=_in_order)}}
        for path in paths:
            parts[max((one for one in parts if path[: len(one)] == one), key=len)].append(path)
        # An interpolation of which some values are replaced stands for a mapping, as it is after the rest is merged.
        for above, within in parts.items():
            if above and isinstance(referred := referred_part(self._merged.document, above), dict):
                self._put(above, referred)
            for path in within:
                self._set(path, self._placed[path])

    # Where a value belongs.

    def _assign(self, values: Mapping[str, JsonValue], above: Path, holder: JsonValue) -> None:
        # Sorted, so that neither the recipe nor the problems depend on the order in which values were written.
        for key, item in sorted(values.items()):
            part = _part(holder, key)
            if part is not None:
                self._descend(item, (*above, part), holder[part])  # type: ignore[index]
            elif above and _is_open(holder):
                # What the base leaves open may get any names.
                self._place((*above, *_names_in(values, key)), item)
            elif (divided := _divided(holder, key)) is not None:
                head, rest = divided
                self._descend(_Rest({rest: item}), (*above, head), holder[head])  # type: ignore[index]
            else:
                self._elsewhere(key, item, above, holder)

    def _descend(self, item: JsonValue, path: Path, found: JsonValue) -> None:
        if isinstance(item, dict) and isinstance(found, str) and not isinstance(found, Literal) and "${" in found:
            referred = referred_part(self._merged.document, path)
            if isinstance(referred, dict) and len(self._referring) >= _REFERRING_MAX:
                statement = f"one of more than {_REFERRING_MAX} interpolations of which some values are replaced"
                self._problems.state(field_name(path, self._origin), statement, "replace all of it")
                return
            if isinstance(referred, dict):
                self._referring.append(path)
                found = referred
        if isinstance(item, dict) and (isinstance(found, dict) or _has_indices(item, found)):
            self._assign(item, path, found)
        elif isinstance(item, dict) and item and _is_open(found):
            self._assign(item, path, {})
        else:
            self._place(path, item)

    def _elsewhere(self, key: str, item: JsonValue, above: Path, holder: JsonValue) -> None:
        """A value whose path does not exist: it may be addressed by a name, or by the end of a path."""
        if isinstance(item, dict) and item and self._by_name:
            places = self._merged.named.get(key) or self._ending(tuple(key.split(".")), above)
            if len(places) == 1 and _is_open(value_at(self._merged.document, *places[0])):
                self._assign(item, places[0], {})
                return
        for rest, value in sorted(leaves({key: item}), key=lambda leaf: _in_order(leaf[0])):
            parts = tuple(part for one in rest for part in str(one).split("."))
            if not self._by_name:
                self._unknown((*above, *rest), parts, holder, above)
            elif len(parts) == 1 and parts[0] in self._merged.named:
                self._place_name(parts[0], value)
            elif parts != (key,) or above or key not in self._merged.embedded:
                ends = self._ending(parts, above)
                if len(ends) == 1:
                    self._place(ends[0], value)
                elif ends:
                    self._ambiguous((*above, *rest), ends)
                else:
                    self._unknown((*above, *rest), parts, holder, above)

    def _place_name(self, name: str, value: JsonValue) -> None:
        for path in self._merged.named.get(name, ()):
            self._place(path, value)

    def _place(self, path: Path, value: JsonValue) -> None:
        if path in self._placed and self._placed[path] != value:
            self._problems.state(field_name(path, self._origin), "set twice, to different values", "keep one of them")
        self._placed[path] = value

    def _ending(self, parts: tuple[str, ...], above: Path = ()) -> list[Path]:
        """The leaves below a path that end with these parts."""
        if self._leaves is None:
            self._leaves = {}
            for path, _ in leaves(self._merged.document):
                self._leaves.setdefault(str(path[-1]), []).append(path)
        # Where a name is very frequent, only whole paths find its places: looking at all of them takes too long.
        same = self._leaves.get(parts[-1], [])[:_SAME_MAX]
        return [path for path in same if path[: len(above)] == above and _ends(path, parts)]

    # What is wrong with an address.

    def _ambiguous(self, path: Path, ends: list[Path]) -> None:
        shown = some_of([path_name(end) for end in ends], _SHOWN)
        self._problems.state(field_name(path, self._origin), f"it could be {shown}", "write one of these paths")

    def _unknown(self, path: Path, parts: tuple[str, ...], holder: JsonValue, above: Path) -> None:
        if isinstance(holder, list):
            allowed = f"0 to {len(holder) - 1}" if holder else "none: the list is empty"
            self._problems.state(field_name(path, self._origin), "no such place in the list", f"allowed: {allowed}")
            return
        near: str | None = None
        if same := self._ending(parts[-1:]):
            near = path_name(same[0])
        elif self._problems.may_search:
            here = [path_name((*above, key)) for key in holder] if isinstance(holder, dict) else []
            names = [*self._merged.named, *self._merged.embedded]
            near = self._problems.nearest(path_name((*above, parts[0])), here)
            near = near or self._problems.nearest(parts[-1], names)
            if near is None and (last := self._problems.nearest(parts[-1], self._leaves or ())):
                near = path_name(self._ending((last,))[0])
        remedy = f"did you mean {near}?" if near else "the recipe has no such value; `muster recipe show` prints it"
        self._problems.state(field_name(path, self._origin), "unknown name", remedy)

    def _without_conflicts(self) -> list[Path]:
        paths = sorted(self._placed, key=lambda path: [str(part) for part in path])
        for path in paths:
            for length in range(1, len(path)):
                if path[:length] in self._placed:
                    name = field_name(path, self._origin)
                    self._problems.state(name, f"set twice, also by {path_name(path[:length])}", "keep one of them")
        return list(self._placed)

    # The merge.

    def _set(self, path: Path, value: JsonValue) -> None:
        if value == MISSING and isinstance(value, str):
            return  # a value that is still to be set replaces none
        decided = self._decided.get(path)
        if decided is not None and self._origin is not Origin.SPEC:
            if value_at(self._merged.document, *path) != value:
                name = field_name(path, self._origin)
                statement = f"the recipe of the hub decides {'this value' if decided == path else path_name(decided)}"
                self._problems.state(name, statement, self._merged.fixed[decided])
            return
        self._put(path, copied(value, in_order=True))
        self._merged.origins[path] = self._origin

    def _put(self, path: Path, value: JsonValue) -> None:
        holder: JsonValue = self._merged.document
        for index, part in enumerate(path[:-1]):
            following = value_at(holder, part)
            if not isinstance(following, dict | list) or (
                isinstance(following, list) and not isinstance(path[index + 1], int)
            ):
                following = {}
                _store(holder, part, following)
            holder = following
        replaced = value_at(holder, path[-1])
        if isinstance(replaced, dict | list) and replaced:
            for known, _ in everything_in(replaced, path):
                self._merged.origins.pop(known, None)
        _store(holder, path[-1], value)


class _Rest(dict[str, JsonValue]):
    """The rest of a path with dots, and its value: a key that has dots itself is written in a mapping of its own."""


def _names_in(values: Mapping[str, JsonValue], key: str) -> list[str]:
    return key.split(".") if isinstance(values, _Rest) else [key]


def _divided(holder: JsonValue, key: str) -> tuple[str | int, str] | None:
    """The beginning of a path with dots that a mapping or list has, and the rest. Keys may have dots themselves."""
    dots = [index for index, one in enumerate(key) if one == "." and 0 < index < len(key) - 1]
    for dot in dots[:_DOTS_MAX]:
        part = _part(holder, key[:dot])
        if part is not None:
            return part, key[dot + 1 :]
    return None


def _has_indices(item: Mapping[str, JsonValue], found: JsonValue) -> bool:
    """Whether a mapping names places of a list."""
    return bool(item) and isinstance(found, list) and all(_INDEX.fullmatch(key.split(".", 1)[0]) for key in item)


def _is_open(holder: JsonValue) -> bool:
    return holder is None or (isinstance(holder, dict) and not holder) or holder == MISSING


def _in_order(path: Path) -> tuple[int, list[str]]:
    return len(path), [str(part) for part in path]


def _part(holder: JsonValue, key: str) -> str | int | None:
    """The key or index that a part of a path means in a mapping or list, if it is there."""
    if isinstance(holder, dict):
        return key if key in holder else None
    if isinstance(holder, list) and _INDEX.fullmatch(key) and int(key) < len(holder):
        return int(key)
    return None


def _store(holder: JsonValue, part: str | int, value: JsonValue) -> None:
    if isinstance(holder, dict):
        holder[str(part)] = value
    elif isinstance(holder, list) and isinstance(part, int) and part < len(holder):
        holder[part] = value


def _ends(path: Path, parts: tuple[str, ...]) -> bool:
    return tuple(map(str, path[-len(parts) :])) == parts
