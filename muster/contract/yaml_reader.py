"""YAML within bounds: a key appears once, there are no tags, and a text cannot grow while it is read.

The parser gives events; values are made here, without recursion. What a value without quotes means is decided by the
rules of the document: a spec follows YAML 1.2, a recipe the programs that read recipes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import yaml

_FLOW_MAX = 100  # brackets in brackets; deeper documents take a time that grows with the square of their depth
NUMBER_MAX = 400
"""Of characters of a number: far above any that a program can use."""
_NAME_SHOWN = 64
_PROBLEM_SHOWN = 200
_STR = "tag:yaml.org,2002:str"


class UnreadableError(ValueError):
    """A value that the rules of the document refuse. The message says what is wrong with it."""


def checked_length(number: str) -> str:
    """The digits of a number, unless there are too many of them for Python to convert (4,300)."""
    if len(number) > NUMBER_MAX:
        message = f"a number of {len(number):,} characters; allowed: at most {NUMBER_MAX}, or text in quotes"
        raise UnreadableError(message)
    return number


class Mark(Protocol):
    """A place in the text."""

    @property
    def line(self) -> int:
        """From 0."""

    @property
    def column(self) -> int:
        """From 0."""


@dataclass(frozen=True)
class Rules:
    """What a document may hold.

    Args:
        value: what text without quotes means; raises UnreadableError.
        key: the text of a key without quotes; anything but text is refused.
        depth: of mappings and lists in each other, with those that aliases repeat.
        name: how many characters a key may have.
        aliases: how many there may be.
        nodes: how many values there may be, with those that aliases repeat.
        braces: the names in `{{name}}` that make it text without quotes; otherwise it is a mapping as a key, which is
            refused.
        quick: whether libyaml reads it, where there is one: ten times faster, with less exact places of mistakes.
    """

    value: Callable[[str], object]
    key: Callable[[str], object]
    depth: int = _FLOW_MAX
    name: int | None = None
    aliases: int = 0
    nodes: int | None = None
    braces: re.Pattern[str] | None = None
    quick: bool = False


@dataclass
class _Open:
    """A mapping or a list that is being read. `key` is the mapping's key whose value is read next."""

    value: dict[str, object] | list[object]
    anchor: str | None
    key: str | None = None
    is_key: bool = False  # of the mapping around it: the inner braces of {{name}}
    braces: str | None = None  # the name in {{name}}, while the outer braces are read
    size: int = 1
    height: int = 0  # of the mappings and lists in it


@dataclass
class _Anchored:
    value: object
    size: int
    height: int


def read_yaml(text: str, rules: Rules) -> object:
    """The value of a YAML (or JSON) document.

    Raises:
        ValueError: with the line, the column and the problem there.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        message = f"line {line}, column {error.start - text.rfind(chr(10), 0, error.start)}: a lone surrogate"
        raise ValueError(message) from None
    try:
        return _Reading(_parser(text, quick=rules.quick), rules).document()
    except yaml.MarkedYAMLError as error:
        place, found = _place(text, error.problem_mark)
        message = f"{place}{_in_words(str(error.problem), found)[:_PROBLEM_SHOWN]}"
        raise ValueError(message) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"line {line}: special characters are not allowed; write text in double quotes, with escapes"
        raise ValueError(message) from None
    except yaml.YAMLError as error:
        message = str(error).splitlines()[0]
        raise ValueError(message) from None


def _place(text: str, mark: Mark | None) -> tuple[str, str]:
    """The place in words, and the character there."""
    if mark is None:
        return "", ""
    lines = text.split("\n")
    last = len(lines) - 1
    while last > 0 and not lines[last]:
        last -= 1
    # libyaml puts what is missing at the end on the line after it.
    line, column = (mark.line, mark.column) if mark.line <= last else (last, len(lines[last]))
    return f"line {line + 1}, column {column + 1}: ", lines[line][column : column + 1]


def _too_deep(most: int) -> str:
    return f"more than {most} levels of nesting"


def _refuse(problem: str, mark: object) -> NoReturn:
    # The typed signature knows only one of the library's two classes of marks.
    raise yaml.constructor.ConstructorError(None, None, problem, mark)  # type: ignore[arg-type]


class _Parser(yaml.SafeLoader):
    """The library's parser in Python, which is used where there is no libyaml."""

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:  # noqa: N803 - the library's name
        # The library reads up to 1,024 characters ahead, which takes half a second if all of them are brackets.
        if self.flow_level >= _FLOW_MAX:
            _refuse(_too_deep(_FLOW_MAX), self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


def _parser(text: str, *, quick: bool) -> yaml.SafeLoader:
    return yaml.CSafeLoader(text) if quick and yaml.__with_libyaml__ else _Parser(text)  # type: ignore[return-value]


@dataclass
class _Reading:
    """One document while it is read."""

    parser: yaml.SafeLoader
    rules: Rules
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, _Anchored] = field(default_factory=dict)
    name: int | None = None
    aliases: int = 0
    nodes: int = 0
    result: object = None
    known: dict[str, object] = field(default_factory=dict)

    def document(self) -> object:
        """The value of the only document."""
        next_event: Callable[[], yaml.Event] = self.parser.get_event
        documents = 0
        while True:
            event = next_event()
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent):
                self._begin({}, event)
            elif isinstance(event, yaml.SequenceStartEvent):
                self._begin([], event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    _refuse("a second document; write one document without ---", event.start_mark)
            elif isinstance(event, yaml.StreamEndEvent):
                return self.result

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text: str = event.value
        if event.tag is not None and event.tag != _STR:
            _refuse_tag(event)
        top = self.open[-1] if self.open else None
        if top is not None and type(top.value) is dict and top.key is None:
            self._key(top, text, event)
            return
        if event.implicit[0]:
            value = self.known.get(text, self)
            if value is self:
                try:
                    value = self.known[text] = self.rules.value(text)
                except UnreadableError as error:
                    _refuse(str(error), event.start_mark)
        else:
            value = text
        self._add(value, event, 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value, 1, 0)

    def _key(self, top: _Open, text: str, event: yaml.ScalarEvent) -> None:
        key: object = text
        if self.rules.name is not None and len(text) > self.rules.name:
            _refuse(f"a key of {len(text):,} characters; allowed: at most {self.rules.name}", event.start_mark)
        if event.implicit[0]:
            try:
                key = self.rules.key(text)
            except UnreadableError as error:
                _refuse(str(error), event.start_mark)
            if not isinstance(key, str):
                _refuse("this key is not a string; write it in quotes", event.start_mark)
        if key in top.value:
            _refuse(f"the key {text[:_NAME_SHOWN]!r} appears twice", event.start_mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(text, 1, 0)
        top.key = key if isinstance(key, str) else text

    def _begin(self, value: dict[str, object] | list[object], event: yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            _refuse_tag(event)
        if len(self.open) >= self.rules.depth:
            _refuse(_too_deep(self.rules.depth), event.start_mark)
        top = self.open[-1] if self.open else None
        is_key = top is not None and type(top.value) is dict and top.key is None
        if top is not None and is_key and not (self._may_be_braces(top) and type(value) is dict):
            _refuse("this key is not a string; write it in quotes", event.start_mark)
        if event.anchor is not None:
            # An alias inside of what it names has no end.
            self.anchors.pop(event.anchor, None)
        self.open.append(_Open(value, event.anchor, is_key=is_key))
        self._count(1, event)

    def _may_be_braces(self, top: _Open) -> bool:
        return self.rules.braces is not None and not top.value and top.braces is None and not top.is_key

    def _end(self, event: yaml.Event) -> None:
        done = self.open.pop()
        if done.is_key:
            names = list(done.value) if type(done.value) is dict else []
            form = self.rules.braces
            if form is None or len(names) != 1 or done.value != {names[0]: None} or not form.fullmatch(names[0]):
                _refuse("this key is not a string; write it in quotes", event.start_mark)
            self.open[-1].braces = self.open[-1].key = names[0]
            return
        value: object = done.value
        if done.braces is not None:
            if done.value != {done.braces: None}:
                _refuse("this key is not a string; write it in quotes", event.start_mark)
            value = f"{{{{{done.braces}}}}}"
        self._add(value, event, done.size, counted=True)
        if self.open:
            self.open[-1].height = max(self.open[-1].height, done.height + 1)
        if done.anchor is not None:
            self.anchors[done.anchor] = _Anchored(value, done.size, done.height + 1)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if not self.rules.aliases:
            # With aliases a few lines can expand to gigabytes.
            _refuse("aliases (*name) are not allowed", event.start_mark)
        self.aliases += 1
        if self.aliases > self.rules.aliases:
            _refuse(f"more than {self.rules.aliases:,} aliases (*name)", event.start_mark)
        anchor = str(event.anchor)
        found = self.anchors.get(anchor)
        if found is None:
            message = f"the alias *{anchor[:_NAME_SHOWN]} has no anchor before it, or lies inside of what it names"
            _refuse(message, event.start_mark)
        top = self.open[-1] if self.open else None
        if top is not None and type(top.value) is dict and top.key is None:
            _refuse("this key is an alias; write the key", event.start_mark)
        if len(self.open) + found.height > self.rules.depth:
            _refuse(_too_deep(self.rules.depth), event.start_mark)
        if top is not None:
            top.height = max(top.height, found.height)
        self._add(found.value, event, found.size)

    def _add(self, value: object, event: yaml.Event, size: int, *, counted: bool = False) -> None:
        if not counted:
            self._count(size, event)
        if not self.open:
            self.result = value
            return
        top = self.open[-1]
        top.size += size
        if type(top.value) is list:
            top.value.append(value)
        elif type(top.value) is dict and top.key is not None:
            top.value[top.key] = value
            top.key = None

    def _count(self, size: int, event: yaml.Event) -> None:
        self.nodes += size
        if self.rules.nodes is not None and self.nodes > self.rules.nodes:
            _refuse(f"more than {self.rules.nodes:,} values", event.start_mark)


def _refuse_tag(event: yaml.NodeEvent) -> NoReturn:
    # A password may begin with an exclamation mark: what follows it is not shown.
    tag = str(event.tag)  # type: ignore[attr-defined]
    known = tag.startswith("tag:yaml.org,2002:")
    name = tag.replace("tag:yaml.org,2002:", "!!")[:40] if known else "!…"
    _refuse(f"tags ({name}) are not allowed; write the value alone, or text in quotes", event.start_mark)


# The library's words for common mistakes, in Python and in C, and plainer ones.
_PLAINER = (
    (r"found a tab character.*", "a tab; indent with spaces"),
    (r"mapping values are not allowed (here|in this context)", "a second colon on the line; write the value in quotes"),
    (r"expected the node content, but found .*|did not find expected node content", "a value is missing here"),
    (
        r"expected <block end>, but found .*|did not find expected (key|'-' indicator)",
        "the indentation does not fit the lines above",
    ),
    (r"(?:expected|did not find expected) ',' or '(.)'.*", r"a comma or the closing \1 is missing here"),
    (r"could not find expected ':'", "a line without a colon, or text whose quotes or indentation do not fit"),
    (r"found unexpected end of stream", "text in quotes without its end"),
    (r"(block )?sequence entries are not allowed .*", "a list cannot begin here; begin it on a line of its own"),
    (r"while .*|did not find expected .*", "this cannot be read"),
)


def _in_words(problem: str, found: str) -> str:
    if "cannot start any token" in problem:
        return (
            "a tab; indent with spaces" if found == "\t" else f"a value cannot begin with {found!r}; write it in quotes"
        )
    return next((match.expand(words) for form, words in _PLAINER if (match := re.fullmatch(form, problem))), problem)
