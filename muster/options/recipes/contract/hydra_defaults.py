"""The `defaults:` list of a public recipe: the files that it names, composed as Hydra 1.3 composes them. Pure.

What public recipes use is supported: absolute and relative groups, `..`, `_self_`, `optional`, packages in the list
(`group@package`, `_global_`, `_here_`, `_group_`) and in the first lines of a file (`# @package recipes`), and lists
within lists. Everything else is refused by name.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic import JsonValue

from muster.options.recipes.contract.expressions.interpolation import MISSING, referred_part
from muster.options.recipes.contract.recipe_text import load_recipe_text
from muster.options.recipes.contract.resolved_recipe import Path
from muster.options.recipes.contract.text_places import refuse

FILES_MAX = 200
"""Files of one recipe; the largest public one has 30."""
DEPTH_MAX = 16
"""Of lists within lists; public recipes have four."""
TEXT_MAX = 4 * 1024 * 1024
"""Of all files of one recipe together, in characters."""

Values = dict[str, JsonValue]
Find = Callable[[str], tuple[str, str] | None]
"""Path and text of the configuration of a name, whose extension may be left out; None where there is none."""

_SELF = "_self_"
_GLOBAL = "_global_"
_OWN = "recipes"  # the package of a public recipe's parts
_PACKAGE = re.compile(r"[\w\-]+(\.[\w\-]+)*")
_PARTS_SHOWN = 80


@dataclass(frozen=True)
class _Item:
    """One entry of a list of defaults."""

    group: str
    name: str
    package: str | None
    optional: bool
    is_group: bool
    """Written as `group: name`: the group has this one choice."""

    def group_from(self, base: str) -> str:
        """The group of the configuration, where `base` is that of the one that names it."""
        if self.group.startswith("/"):
            return self.group[1:]
        return "/".join(part for part in (base, self.group) if part)

    def package_from(self, parent: str, group: str, header: str | None) -> str:
        """Where its values go, with dots; `header` is the package that the file itself names."""
        package = self.package
        if package is None and header is not None:
            package = f"{_GLOBAL}.{header}" if header else _GLOBAL
        if package is None:
            package = self.group.removeprefix("/").replace("/", ".")
        elif package == "_here_":
            package = ""
        elif "_group_" in package:
            package = f"{_GLOBAL}.{package.replace('_group_', group.replace('/', '.'))}"
        whole = ".".join(part for part in (parent, package) if part)
        return whole.rpartition(_GLOBAL)[2].removeprefix(".")


def composed(recipe: str, text: str, find: Find) -> Values | None:
    """The values of the recipe at the path `recipe`, and of everything that it names; None if it names nothing.

    Raises:
        PlaceError: a file is missing or no mapping, or a list has something that is not supported.
    """
    composition = _Composition(find)
    content, defaults = composition.split(recipe, text)
    if defaults is None:
        return None
    composition.add(_Config(recipe, "", _header(recipe, text) or "", content, defaults), ())
    values = composition.values
    values.pop("hydra", None)
    # Files of the public recipes have the package `recipes`, and the recipe itself has none: it is laid over them.
    inner = values.pop(_OWN, None)
    if isinstance(inner, dict):
        # Interpolations refer to the parts as they are before anything is laid over them.
        merge(inner, values, {**values, _OWN: copy.deepcopy(inner), "": inner}, ("",))
        return inner
    return values if inner is None else {**values, _OWN: inner}


@dataclass(frozen=True)
class _Config:
    """A file, its group, its package, its values and its list of defaults."""

    path: str
    group: str
    package: str
    content: Values
    defaults: Sequence[object] | None


class _Composition:
    """One composition: the values so far, and how much was read."""

    def __init__(self, find: Find) -> None:
        self.values: Values = {}
        self._find = find
        self._files = self._characters = 0
        self._chosen: dict[tuple[str, str], str] = {}

    def split(self, path: str, text: str) -> tuple[Values, Sequence[object] | None]:
        """The values of a file, and its list of defaults."""
        self._files += 1
        self._characters += len(text)
        if self._files > FILES_MAX or self._characters > TEXT_MAX:
            _refuse(path, f"the recipe is composed of more than {FILES_MAX} files or {TEXT_MAX:,} characters")
        if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
            return {}, None
        try:
            content = load_recipe_text(text)
        except ValueError as error:
            _refuse(path, str(error))
        defaults = content.pop("defaults", None)
        if defaults is not None and not isinstance(defaults, list):
            _refuse(path, "its defaults are not a list")
        return content, defaults

    def add(self, config: _Config, above: tuple[str, ...]) -> None:
        """Lay a file and what it names over the values so far."""
        if config.path in above:
            _refuse(config.path, f"it names itself, by way of {' and '.join(above[above.index(config.path) :])}")
        if len(above) >= DEPTH_MAX:
            _refuse(config.path, f"more than {DEPTH_MAX} lists of defaults within each other")
        entries = list(config.defaults or [])
        if entries.count(_SELF) > 1:
            _refuse(config.path, f"its defaults have {_SELF} twice")
        if _SELF not in entries:
            entries.append(_SELF)
        for entry in entries:
            if entry == _SELF:
                merge(self.values, _placed(config.package, config.content), self.values, ())
                continue
            for item in _items(config.path, entry):
                self._add_item(config, item, (*above, config.path))

    def _add_item(self, parent: _Config, item: _Item, above: tuple[str, ...]) -> None:
        group = item.group_from(parent.group)
        config = "/".join(part for part in (group, item.name) if part)
        if item.is_group:
            # A file's own header does not distinguish two of them.
            key = group, item.package_from(parent.package, group, None)
            if self._chosen.setdefault(key, item.name) != item.name:
                others = self._chosen[key]
                _refuse(parent.path, f"its defaults have {item.name!r} where others have {others!r}: {group}")
        found = self._find(config)
        if found is None:
            if item.optional:
                return
            _refuse(parent.path, f"its defaults name {config!r}, and there is no file of that name")
        path, text = found
        header = _header(path, text)
        if ".." in item.group and item.package is None and header is None:
            _refuse(parent.path, f"its defaults name {item.group!r} without a package (group@package: name)")
        package = item.package_from(parent.package, group, header)
        if package and not _PACKAGE.fullmatch(package):
            _refuse(parent.path, f"its defaults have the package {package[:_PARTS_SHOWN]!r}")
        content, defaults = self.split(path, text)
        self.add(_Config(path, group, package, content, defaults), above)


def _items(path: str, entry: object) -> list[_Item]:
    """What an entry of a list names: several with `group: [a, b]`, none with `group: null`."""
    if isinstance(entry, str):
        place, _, package = entry.partition("@")
        _refuse_unsupported(path, entry)
        group, slash, name = place.rpartition("/")
        group = group or slash  # of `/name`
        return [_Item(group, name, package if "@" in entry else None, optional=False, is_group=False)]
    if not isinstance(entry, dict) or len(entry) != 1:
        _refuse(path, "an entry of its defaults is neither a name nor a group with a name")
    [(key, value)] = entry.items()
    *keywords, place = str(key).split(" ")
    if not set(keywords) <= {"optional"}:
        _refuse(path, f"its defaults have the keyword {keywords[0]!r}, which is not supported")
    group, at, package = place.partition("@")
    names = value if isinstance(value, list) else [] if value is None else [value]
    for name in names:
        if not isinstance(name, str):
            _refuse(path, f"its defaults name no file for the group {group!r}")
        _refuse_unsupported(path, f"{place}/{name}")
    one = isinstance(value, str)
    return [_Item(group, name, package if at else None, optional=bool(keywords), is_group=one) for name in names]


def _refuse_unsupported(path: str, text: str) -> None:
    if "${" in text:
        _refuse(path, f"its defaults have the interpolation {text[:_PARTS_SHOWN]!r}, which is not supported")
    if MISSING in text:
        _refuse(path, f"its defaults leave {text[:_PARTS_SHOWN]!r} open, which is not supported")
    if ":" in text.partition("@")[2] or "_name_" in text:
        _refuse(path, f"its defaults have the package {text[:_PARTS_SHOWN]!r}, which is not supported")


def _header(path: str, text: str) -> str | None:
    """The package that the first lines of a file name (`# @package a.b`); empty for `_global_`."""
    for line in text.splitlines():
        bare = line.strip()
        if not bare:
            continue
        if not re.match(r"#\s*@", bare):
            return None
        words = bare.lstrip("#").split()
        if words[0] == "@package":
            if len(words) != 2 or not _PACKAGE.fullmatch(words[1]):
                _refuse(path, f"its header {bare[:_PARTS_SHOWN]!r} names no package")
            return words[1].removeprefix(_GLOBAL).removeprefix(".")
    return None


def _placed(package: str, content: Values) -> Values:
    placed = content
    for part in reversed(package.split(".") if package else []):
        placed = {part: placed}
    return placed


def merge(target: Values, over: Mapping[str, JsonValue], document: Values, above: Path) -> None:
    """Lay values over `target`, which is at the path `above` of the document.

    Mappings are merged, everything else is replaced, and `???` replaces nothing. What an interpolation stands for at
    this moment is copied before a mapping is laid over it.
    """
    for key, value in over.items():
        known = target.get(key)
        if isinstance(known, str) and isinstance(value, dict | list) and "${" in known:
            known = target[key] = referred_part(document, (*above, key))
        if isinstance(known, dict | list) and isinstance(value, dict | list) and type(known) is not type(value):
            names = {dict: "mapping", list: "list"}
            _refuse(key[:_PARTS_SHOWN], f"a {names[type(value)]} is laid over a {names[type(known)]}")
        if isinstance(value, dict):
            below: Values = known if isinstance(known, dict) else {}
            target[key] = below
            merge(below, value, document, (*above, key))
        elif value != MISSING or key not in target:
            target[key] = value


def _refuse(path: str, statement: str) -> NoReturn:
    refuse(f"{path}: {statement}", "correct the file, or write the recipe without defaults")
