"""YAML within bounds: a key appears once, there are no tags, and a text cannot grow while it is read.

The library composes nodes; the values of their scalars are made here. What a value without quotes means is decided by
the rules of the document: a spec follows YAML 1.2, a recipe the programs that read recipes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import yaml

_FLOW_MAX = 100  # brackets in brackets; deeper documents take a time that grows with the square of their depth
NUMBER_MAX = 400
"""Of characters of a number: far above any that a program can use."""
_NAME_SHOWN = 64
_PROBLEM_SHOWN = 200
_STR = "tag:yaml.org,2002:str"
_PLAIN = "plain"  # the tag of a scalar without quotes
_NO_NAME = "this key is not a string; write it in quotes"


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
        quick: whether libyaml reads it, where there is one: several times faster, with less exact places of mistakes.
    """

    value: Callable[[str], object]
    key: Callable[[str], object]
    depth: int = _FLOW_MAX
    name: int | None = None
    aliases: int = 0
    nodes: int | None = None
    braces: re.Pattern[str] | None = None
    quick: bool = False


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
        node = _composed(text, rules)
        return None if node is None else _Construction(rules).value(node)
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


class _Alias(yaml.Node):
    """The place where a node is repeated."""

    def __init__(self, node: yaml.Node | None, mark: Any) -> None:
        super().__init__("", node, mark, mark)


class _Composer(yaml.composer.Composer):
    """The library's composer of nodes, which refuses what could grow or cannot be told apart from something else."""

    rules: Rules
    _level = _aliases = _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node of the text, where a document may have it."""
        event: Any = self.peek_event()  # type: ignore[attr-defined]
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        if isinstance(event, yaml.AliasEvent):
            self._check_alias(event, is_key=is_key)
            return _Alias(super().compose_node(parent, index), event.start_mark)
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag == _STR):
            _refuse_tag(event)
        self.anchors.pop(event.anchor, None)  # a later anchor of a name replaces an earlier one
        is_holder = isinstance(event, yaml.CollectionStartEvent)
        if is_holder and is_key and self.rules.braces is None:
            _refuse(_NO_NAME, event.start_mark)
        if is_holder and self._level >= self.rules.depth:
            _refuse(_too_deep(self.rules.depth), event.start_mark)
        self._nodes += not is_key
        _check_nodes(self._nodes, self.rules, event.start_mark)
        self._level += is_holder
        node = super().compose_node(parent, index)
        self._level -= is_holder
        return node

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:  # noqa: ARG002
        """What a scalar means is decided by the rules of the document, once it is known whether it has quotes."""
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _STR

    def _check_alias(self, event: yaml.AliasEvent, *, is_key: bool) -> None:
        if not self.rules.aliases:
            # With aliases a few lines can expand to gigabytes.
            _refuse("aliases (*name) are not allowed", event.start_mark)
        self._aliases += 1
        if self._aliases > self.rules.aliases:
            _refuse(f"more than {self.rules.aliases:,} aliases (*name)", event.start_mark)
        anchor = str(event.anchor)
        found = self.anchors.get(anchor)
        if found is None or found.end_mark is None:
            message = f"the alias *{anchor[:_NAME_SHOWN]} has no anchor before it, or lies inside of what it names"
            _refuse(message, event.start_mark)
        if is_key:
            _refuse("this key is an alias; write the key", event.start_mark)


class _Loader(_Composer, yaml.SafeLoader):
    """With the library's parser in Python, which is used where there is no libyaml."""

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:  # noqa: N803 - the library's name
        # The library reads up to 1,024 characters ahead, which takes half a second if all of them are brackets.
        if self.flow_level >= _FLOW_MAX:
            _refuse(_too_deep(_FLOW_MAX), self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


class _QuickLoader(_Composer, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """With libyaml's parser."""

    def __init__(self, text: str) -> None:
        super(yaml.composer.Composer, self).__init__(text)
        yaml.composer.Composer.__init__(self)


def _composed(text: str, rules: Rules) -> yaml.Node | None:
    loader = _QuickLoader(text) if rules.quick and yaml.__with_libyaml__ else _Loader(text)
    loader.rules = rules
    node: yaml.Node | None = loader.get_single_node()
    return node


@dataclass
class _Construction:
    """The values of one document's nodes. An alias gives the values of its anchor once more."""

    rules: Rules
    nodes: int = 0
    known: dict[str, object] = field(default_factory=dict)

    def value(self, node: yaml.Node, level: int = 1, alias: object = None) -> object:
        """What a node stands for; `level` - 1 mappings and lists are around it, and `alias` is where it is repeated."""
        if isinstance(node, _Alias):
            return self.value(node.value, level, alias or node.start_mark)
        self.nodes += 1
        _check_nodes(self.nodes, self.rules, alias or node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._meant(node, self.rules.value) if node.tag == _PLAIN else node.value
        if level > self.rules.depth:
            _refuse(_too_deep(self.rules.depth), alias or node.start_mark)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, level + 1, alias) for item in node.value]
        if (name := self._name_in_braces(node)) is not None:
            return f"{{{{{name}}}}}"
        found: dict[str, object] = {}
        for key, item in node.value:
            name = self._key(key)
            if name in found:
                _refuse(f"the key {key.value[:_NAME_SHOWN]!r} appears twice", key.start_mark)
            found[name] = self.value(item, level + 1, alias)
        return found

    def _meant(self, node: yaml.ScalarNode, rule: Callable[[str], object]) -> object:
        try:
            return rule(node.value)
        except UnreadableError as error:
            _refuse(str(error), node.start_mark)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            _refuse(_NO_NAME, node.start_mark)
        if self.rules.name is not None and len(node.value) > self.rules.name:
            found = f"a key of {len(node.value):,} characters"
            _refuse(f"{found}; allowed: at most {self.rules.name}", node.start_mark)
        key = self._meant(node, self.rules.key) if node.tag == _PLAIN else node.value
        if not isinstance(key, str):
            _refuse(_NO_NAME, node.start_mark)
        return key

    def _name_in_braces(self, node: yaml.Node) -> str | None:
        """The name in `{{name}}`, which YAML takes for a mapping whose key is a mapping."""
        form, pairs = self.rules.braces, node.value
        if form is None or len(pairs) != 1 or not isinstance(pairs[0][0], yaml.MappingNode):
            return None
        inner = pairs[0][0].value
        if len(inner) != 1 or not all(self._is_null(value) for value in (pairs[0][1], inner[0][1])):
            return None
        name = self._key(inner[0][0])
        return name if form.fullmatch(name) else None

    def _is_null(self, node: yaml.Node) -> bool:
        return isinstance(node, yaml.ScalarNode) and self.value(node) is None


def _check_nodes(count: int, rules: Rules, mark: object) -> None:
    if rules.nodes is not None and count > rules.nodes:
        _refuse(f"more than {rules.nodes:,} values", mark)


def _refuse_tag(event: yaml.NodeEvent) -> NoReturn:
    # A password may begin with an exclamation mark: what follows it is not shown.
    tag = str(event.tag)  # type: ignore[attr-defined]
    known = tag.startswith("tag:yaml.org,2002:")
    name = tag.replace("tag:yaml.org,2002:", "!!")[:40] if known else "!…"
    _refuse(f"tags ({name}) are not allowed; write the value alone, or text in quotes", event.start_mark)


# The library's words for common mistakes, in Python and in C, and plainer ones.
_PLAINER = (
    ("but found another document", "a second document; write one document without ---"),
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
