"""The grammar of `${...}` in a recipe's text: what OmegaConf accepts, as a tree.

A text without `${` is no interpolation, whatever else it holds. `\\${` is `${` as plain text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

_NESTING_MAX = 16
_ITEMS_MAX = 256

_SIMPLE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
_RESOLVER = re.compile(r"([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)[ \t]*:[ \t]*", re.ASCII)
_KEY = re.compile(r"[^\\{}()\[\]:. \t'\"$]+|\$(?!\{)")
_SPACE = re.compile(r"[ \t]*")
_COMMA = re.compile(r"[ \t]*,[ \t]*")
_CLOSE = {closing: re.compile(rf"[ \t]*\{closing}") for closing in "]}"}
_ESCAPED = re.compile(r"(?:\\[\\()\[\]{}:=, \t])+")
_UNQUOTED = re.compile(r"[A-Za-z0-9_/\-+.%*@?|:]+|\$(?!\{)|\\", re.ASCII)
_PAIR_NAME = re.compile(r"([A-Za-z0-9_/\-+.$%*@?|\\](?:[ \t]*[A-Za-z0-9_/\-+.$%*@?|\\])*)[ \t]*:[ \t]*", re.ASCII)
_WHOLE = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)")
_NUMBER = re.compile(
    r"[+-]?(?:(?:(?:0|[1-9](?:_?[0-9])*)?\.[0-9](?:_?[0-9])*|(?:0|[1-9](?:_?[0-9])*)\.?)(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
    r"|[Ii][Nn][Ff]|[Nn][Aa][Nn])"
)
_DIGITS_MAX = 400


class InvalidInterpolationError(ValueError):
    """Text that begins an interpolation and is none. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`${a.b}`: a path, whose parts may come from other interpolations. Leading dots make it relative."""

    parts: tuple[str | Reference | Call, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`${name:argument,...}`."""

    name: str
    arguments: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text with interpolations in it. One alone keeps its type, unless the text was in quotes."""

    parts: tuple[str | Reference | Call, ...]
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A value without interpolations."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    """`[a, b]`."""

    items: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """`{a: b}`."""

    pairs: tuple[tuple[str, Element], ...]


Element = Reference | Call | Text | Constant | Items | Pairs


def parse_interpolation(text: str) -> Element:
    """The tree of a text with `${` in it.

    Raises:
        InvalidInterpolationError: it is not closed, or has what the grammar does not allow.
    """
    simple = _SIMPLE.fullmatch(text)
    if simple:
        return Reference((simple[1],))
    parts = _Parser(text).text(None)
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0]
    if all(isinstance(part, str) for part in parts):
        return Constant("".join(str(part) for part in parts))
    return Text(tuple(parts))


class _Parser:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nesting = 0

    def text(self, quote: str | None) -> list[str | Reference | Call]:
        """Plain text with interpolations, up to the end, or up to the closing quote."""
        text, parts, plain = self._text, list[str | Reference | Call](), list[str]()

        def end_plain() -> None:
            if joined := "".join(plain):
                parts.append(joined)
            plain.clear()

        special = "$\\" if quote is None else f"$\\{quote}"
        while True:
            begin = self._at
            while self._at < len(text) and text[self._at] not in special:
                self._at += 1
            plain.append(text[begin : self._at])
            if self._at == len(text):
                if quote is not None:
                    self._fail(f"a closing {quote} is missing")
                end_plain()
                return parts
            if text[self._at] == quote:
                self._at += 1
                end_plain()
                return parts
            if text.startswith("${", self._at):
                end_plain()
                parts.append(self._interpolation())
            elif text[self._at] == "$":
                plain.append("$")
                self._at += 1
            else:
                plain.append(self._backslashes(quote))

    def _backslashes(self, quote: str | None) -> str:
        """Backslashes count only before an interpolation, before a quote in quotes, and at the end of quotes."""
        text, begin = self._text, self._at
        while self._at < len(text) and text[self._at] == "\\":
            self._at += 1
        count = self._at - begin
        if text.startswith("${", self._at):
            if count % 2:
                self._at += 2
                return "\\" * (count // 2) + "${"
            return "\\" * (count // 2)
        if quote is not None and text.startswith(quote, self._at):
            if count % 2:
                self._at += 1
                return "\\" * (count // 2) + quote
            return "\\" * (count // 2)
        return "\\" * count

    def _interpolation(self) -> Reference | Call:
        self._enter()
        self._at += 2
        self._skip(_SPACE)
        found = _RESOLVER.match(self._text, self._at)
        result: Reference | Call
        if found:
            self._at = found.end()
            result = Call(found[1], self._elements("}"))
        else:
            result = Reference(self._path())
        self._nesting -= 1
        return result

    def _path(self) -> tuple[str | Reference | Call, ...]:
        text, parts = self._text, list[str | Reference | Call]()
        while text.startswith(".", self._at):
            parts.append(".")
            self._at += 1
        first = True
        while True:
            if text.startswith("[", self._at):
                self._at += 1
                parts += ["[", *self._path_key()]
                self._expect("]")
                parts.append("]")
            elif not first and text.startswith(".", self._at):
                self._at += 1
                parts += [".", *self._path_key()]
            elif first:
                parts += self._path_key()
            else:
                break
            first = False
        self._skip(_SPACE)
        if text.startswith(":", self._at):
            self._fail("the name of a resolver cannot come from an interpolation, and begins with a letter")
        self._expect("}")
        joined: list[str | Reference | Call] = []
        for part in parts:
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            else:
                joined.append(part)
        return tuple(joined)

    def _path_key(self) -> list[str | Reference | Call]:
        if self._text.startswith("${", self._at):
            return [self._interpolation()]
        begin = self._at
        while found := _KEY.match(self._text, self._at):
            self._at = found.end()
        if begin == self._at:
            self._fail("a name is missing" if self._at < len(self._text) else "a closing } is missing")
        return [self._text[begin : self._at]]

    def _elements(self, closing: str) -> tuple[Element, ...]:
        """Values with commas between them, and the closing bracket. A missing value is an empty text."""
        items: list[Element] = []
        if self._closes(closing):
            return ()
        while True:
            if _COMMA.match(self._text, self._at) or _CLOSE[closing].match(self._text, self._at):
                items.append(Constant(""))
            else:
                items.append(self._element())
            if len(items) > _ITEMS_MAX:
                self._fail(f"more than {_ITEMS_MAX} values")
            if self._closes(closing):
                return tuple(items)
            self._comma(closing)

    def _element(self) -> Element:
        text = self._text
        start = text[self._at : self._at + 1]
        if start in {"'", '"'} and start:
            self._at += 1
            parts = self.text(start)
            if all(isinstance(part, str) for part in parts):
                return Constant("".join(str(part) for part in parts))
            return Text(tuple(parts), quoted=True)
        if start not in {"[", "{"}:
            return self._primitive()
        self._enter()
        self._at += 1
        self._skip(_SPACE)
        result: Element = Items(self._elements("]")) if start == "[" else Pairs(self._pairs())
        self._nesting -= 1
        return result

    def _pairs(self) -> tuple[tuple[str, Element], ...]:
        pairs: list[tuple[str, Element]] = []
        if self._closes("}"):
            return ()
        while True:
            found = _PAIR_NAME.match(self._text, self._at)
            if not found or found[1] in (key for key, _ in pairs):
                self._fail("a name and a colon are missing in {name: value}, or the name appears twice")
            self._at = found.end()
            name = found[1]
            pairs.append((name, self._element()))
            if len(pairs) > _ITEMS_MAX:
                self._fail(f"more than {_ITEMS_MAX} values")
            if self._closes("}"):
                return tuple(pairs)
            self._comma("}")

    def _primitive(self) -> Element:
        """Text without quotes: what it is, is decided by all of it."""
        text, parts, plain, escaped = self._text, list[str | Reference | Call](), list[str](), False
        while self._at < len(text):
            if text.startswith("${", self._at):
                if plain:
                    parts.append("".join(plain))
                    plain = []
                parts.append(self._interpolation())
                continue
            space = _SPACE.match(text, self._at)
            after = space.end() if space else self._at
            if text[after : after + 1] in {",", "]", "}", ""}:
                break
            if found := _ESCAPED.match(text, self._at):
                plain.append(found[0][1::2])
                escaped = True
            elif found := _UNQUOTED.match(text, self._at):
                plain.append(found[0])
            elif after > self._at:
                plain.append(text[self._at : after])
                self._at = after
                continue
            else:
                self._fail(f"{text[self._at]!r} is not allowed here without quotes")
            self._at = found.end()
        if plain:
            parts.append("".join(plain))
        if len(parts) == 1:
            only = parts[0]
            if not isinstance(only, str):
                return only
            return Constant(only if escaped else self._typed(only))
        if not parts:
            self._fail("a value is missing" if self._at < len(text) else "a closing } is missing")
        return Text(tuple(parts))

    def _typed(self, text: str) -> str | float | bool | None:
        lower = text.lower()
        if lower in {"true", "false"}:
            return lower == "true"
        if lower == "null":
            return None
        whole, number = _WHOLE.fullmatch(text), _NUMBER.fullmatch(text)
        if (whole or number) and len(text) > _DIGITS_MAX:
            self._fail(f"a number of {len(text):,} characters; allowed: at most {_DIGITS_MAX}")
        return int(text) if whole else float(text) if number else text

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            self._fail(f"more than {_NESTING_MAX} levels of nesting")

    def _skip(self, form: re.Pattern[str]) -> None:
        if found := form.match(self._text, self._at):
            self._at = found.end()

    def _closes(self, closing: str) -> bool:
        found = _CLOSE[closing].match(self._text, self._at)
        if found:
            self._at = found.end()
        return found is not None

    def _comma(self, closing: str) -> None:
        if not _COMMA.match(self._text, self._at):
            self._fail(f"a comma or the closing {closing} is missing")
        self._skip(_COMMA)

    def _expect(self, closing: str) -> None:
        if not self._text.startswith(closing, self._at):
            self._fail(f"a closing {closing} is missing")
        self._at += 1

    def _fail(self, problem: str) -> NoReturn:
        message = f"{problem} (character {self._at + 1})"
        raise InvalidInterpolationError(message)
