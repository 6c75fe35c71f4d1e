"""Placeholders of a recipe: `{{name}}`, whole or as a part of a text, quoted or not. `\\{{` is `{{` as plain text.

A value takes the place of a placeholder as a value. It is never read as YAML, and never searched for placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.document_values import everything_in
from muster.options.recipes.contract.expressions.interpolation import Literal, literal
from muster.options.recipes.contract.recipe_text import NODES_MAX, PLACEHOLDER_NAME, TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import Path

_PLACEHOLDER = re.compile(rf"(\\?)\{{\{{\s*({PLACEHOLDER_NAME})\s*\}}\}}")
_WHOLE = re.compile(rf"(['\"]?)\{{\{{\s*({PLACEHOLDER_NAME})\s*\}}\}}\1")


@dataclass(frozen=True)
class Filling:
    """The value of a placeholder. `plain` text is never an interpolation."""

    value: JsonValue
    origin: Origin
    plain: bool


@dataclass
class Filled:
    """A document in which values took the place of placeholders."""

    document: dict[str, JsonValue]
    origins: dict[Path, Origin] = field(default_factory=dict)
    whole: dict[str, list[Path]] = field(default_factory=dict)  # where each name is all of a value
    names: set[str] = field(default_factory=set)
    unfilled: list[tuple[Path, str]] = field(default_factory=list)  # what has no value
    faults: list[tuple[Path, str, str]] = field(default_factory=list)


def placeholder_names(document: JsonValue) -> list[str]:
    """The names of all placeholders, in the document's order."""
    names: dict[str, None] = {}
    for _, text in everything_in(document):
        if isinstance(text, str) and "{{" in text:
            names |= {name: None for escape, name in _PLACEHOLDER.findall(text) if not escape}
    return list(names)


def fill(document: dict[str, JsonValue], value_of: Callable[[str], Filling | None], *, plain: bool = False) -> Filled:
    """A copy of the document, with values in place of placeholders; of a `plain` document only the copy."""
    filler = _Filler(value_of, plain)
    filler.filled.document = {key: filler.copy(item, (key,)) for key, item in document.items()}
    return filler.filled


@dataclass
class _Filler:
    value_of: Callable[[str], Filling | None]
    plain: bool
    filled: Filled = field(default_factory=lambda: Filled({}))
    nodes: int = 0
    characters: int = 0

    def copy(self, value: JsonValue, path: Path) -> JsonValue:
        if isinstance(value, str):
            return Literal(value) if self.plain else self.text(value, path) if "{{" in value else value
        if isinstance(value, dict):
            return {key: self.copy(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.copy(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def text(self, text: str, path: Path) -> JsonValue:
        whole = _WHOLE.fullmatch(text)
        if whole:
            name = whole[2]
            self.filled.names.add(name)
            self.filled.whole.setdefault(name, []).append(path)
            filling = self.value_of(name)
            if filling is None:
                self.filled.unfilled.append((path, name))
                return None
            self.filled.origins[path] = filling.origin
            if not self._count(filling.value):
                self._fault(path, "placeholders that make the recipe too large", "keep data in S3")
                return None
            return literal(filling.value) if filling.plain else copied(filling.value)
        return self._parts(text, path)

    def _parts(self, text: str, path: Path) -> JsonValue:
        parts, end, plain, opened, failed = list[str](), 0, False, 0, False
        live = "${" in text
        for found in _PLACEHOLDER.finditer(text):
            before = text[end : found.start()]
            opened += before.count("${") - before.count("}")
            parts.append(before)
            end = found.end()
            if found[1]:
                parts.append(found[0][1:])
                continue
            name = found[2]
            self.filled.names.add(name)
            filling = self.value_of(name)
            value = None if filling is None else self._as_text(filling.value, name, path)
            if filling is None or value is None:
                if filling is None:
                    self.filled.unfilled.append((path, name))
                failed = True
                continue
            self.filled.origins[path] = max(self.filled.origins.get(path, Origin.BASE), filling.origin, key=_STRENGTH)
            if live and (opened > 0 or not set(value).isdisjoint("$\\{}")):
                self._fault(path, f"{{{{{name}}}}} in a text that also has an interpolation", "make two values of it")
                failed = True
                continue
            if not self._count(value):
                self._fault(path, "placeholders that make the recipe too large", "keep data in S3")
                return None
            plain = plain or not live
            parts.append(value)
        if failed:
            return None
        joined = "".join([*parts, text[end:]])
        return Literal(joined) if plain else joined

    def _count(self, value: JsonValue) -> bool:
        """Whether this value, with those that took the place of other placeholders, is small enough for a recipe."""
        for _, one in everything_in(value):
            self.nodes += 1
            self.characters += len(one) if isinstance(one, str) else 0
            if self.nodes >= NODES_MAX or self.characters >= TEXT_MAX:
                return False
        return True

    def _as_text(self, value: JsonValue, name: str, path: Path) -> str | None:
        if isinstance(value, dict | list) or value is None:
            kind = "no value" if value is None else "a mapping or a list"
            self._fault(path, f"{{{{{name}}}}} as a part of a text, but it is {kind}", "give it a text or a number")
            return None
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    def _fault(self, path: Path, found: str, remedy: str) -> None:
        self.filled.faults.append((path, found, remedy))


_STRENGTH = list(Origin).index


def copied(value: JsonValue) -> JsonValue:
    """A copy whose mappings and lists are objects of their own."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
