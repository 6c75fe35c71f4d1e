"""Placeholders of a recipe: `{{name}}`, whole or as a part of a text, quoted or not. `\\{{` is `{{` as plain text.

A value takes the place of a placeholder as a value. It is never read as YAML, and never searched for placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from muster.contract.spec.private_values import kind_of
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.document_values import copied, everything_in
from muster.options.recipes.contract.expressions.interpolation import Literal, literal
from muster.options.recipes.contract.recipe_problems import Problems, field
from muster.options.recipes.contract.recipe_text import NODES_MAX, PLACEHOLDER_NAME, TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import Path, ReadDocument

_PLACEHOLDER = re.compile(rf"(\\?)\{{\{{\s*({PLACEHOLDER_NAME})\s*\}}\}}")
_LIVE = frozenset({Origin.DEFAULT, Origin.OVERRIDE, Origin.VALUE})
_WHOLE = re.compile(rf"(['\"]?)\{{\{{\s*({PLACEHOLDER_NAME})\s*\}}\}}\1")


@dataclass(frozen=True)
class Filling:
    """The value of a placeholder. The text of an input, or of the spec's other fields, is never an interpolation."""

    value: JsonValue
    origin: Origin


def placeholder_names(document: JsonValue) -> list[str]:
    """The names of all placeholders, in the document's order."""
    names: dict[str, None] = {}
    for _, text in everything_in(document):
        if isinstance(text, str) and "{{" in text:
            names |= {name: None for escape, name in _PLACEHOLDER.findall(text) if not escape}
    return list(names)


class Filled:
    """A copy of a document with values in place of placeholders; of one in which nothing is one, only the copy."""

    def __init__(self, read: ReadDocument, value_of: Callable[[str], Filling | None], problems: Problems) -> None:
        self.origins: dict[Path, Origin] = {}
        self.whole: dict[str, list[Path]] = {}  # where each name is all of a value
        self.names: set[str] = set()
        self.unfilled: list[tuple[Path, str, Origin]] = []  # what has no value
        self._read, self._value_of, self._problems = read, value_of, problems
        self._plain = read.is_literal
        self._nodes = self._characters = 0
        self.document = {key: self._copy(item, (key,)) for key, item in read.values.items()}

    def _copy(self, value: JsonValue, path: Path) -> JsonValue:
        if isinstance(value, str):
            return Literal(value) if self._plain else self._text(value, path) if "{{" in value else value
        if isinstance(value, dict):
            return {key: self._copy(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copy(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _filling(self, name: str, path: Path) -> Filling | None:
        self.names.add(name)
        filling = self._value_of(name)
        if filling is None:
            self.unfilled.append((path, name, self._read.origin))
        return filling

    def _text(self, text: str, path: Path) -> JsonValue:
        whole = _WHOLE.fullmatch(text)
        if whole:
            name = whole[2]
            self.whole.setdefault(name, []).append(path)
            filling = self._filling(name, path)
            if filling is None:
                return None
            self.origins[path] = filling.origin
            if not self._count(filling.value):
                self._fault(path, "placeholders that make the recipe too large", "keep data in S3")
                return None
            return copied(filling.value) if filling.origin in _LIVE else literal(filling.value)
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
            filling = self._filling(name, path)
            value = None if filling is None else self._as_text(filling.value, name, path)
            if filling is None or value is None:
                failed = True
                continue
            self.origins[path] = max(self.origins.get(path, Origin.BASE), filling.origin, key=_STRENGTH)
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
            self._nodes += 1
            self._characters += len(one) if isinstance(one, str) else 0
            if self._nodes >= NODES_MAX or self._characters >= TEXT_MAX:
                return False
        return True

    def _as_text(self, value: JsonValue, name: str, path: Path) -> str | None:
        if isinstance(value, dict | list) or value is None:
            found = f"{{{{{name}}}}} as a part of a text, but it is {kind_of(value)}"
            self._fault(path, found, "give it a text or a number")
            return None
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    def _fault(self, path: Path, found: str, remedy: str) -> None:
        self._problems.state(field(path, self._read.origin), found, remedy)


_STRENGTH = list(Origin).index
