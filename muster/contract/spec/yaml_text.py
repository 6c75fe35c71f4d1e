"""YAML without surprises: values are read as in YAML 1.2, a key appears once, and there are no aliases, tags or dates.

YAML 1.1, which the library follows, reads 12:30 as 750, 0777 as 511 and `no` as false. YAML 1.2 does not. What the two
read as different numbers is refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NoReturn

import yaml

# Of nesting. Deeper documents take a time that grows with the square of their depth. Above the limit of a spec
# (DEPTH_MAX), whose error names the field.
_DEPTH_MAX = 100
_TOO_DEEP = f"more than {_DEPTH_MAX} levels of nesting"
# Far above any number that a program can use, and below the length that Python refuses to convert (4,300).
_NUMBER_MAX = 400
_NAME_SHOWN = 64
_PROBLEM_SHOWN = 200

_STR = "tag:yaml.org,2002:str"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_UNCLEAR = "tag:unclear-number"
# The core schema of YAML 1.2: what a value without quotes is, by its first character. The rest is text.
_PLAIN = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", list("-+0123456789")),
    (_FLOAT, r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    (_FLOAT, r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
)
# 0777 and 0b11 are other numbers in YAML 1.1, and 1_000 is text in YAML 1.2.
_TWO_NUMBERS = r"[-+]?(0[0-9_]+|0b[01_]+|0x[0-9a-fA-F_]*_[0-9a-fA-F_]*|[1-9][0-9]*_[0-9_]*)"


def _refuse(problem: str, mark: object) -> NoReturn:
    # The typed signature knows only one of the library's two classes of marks.
    raise yaml.constructor.ConstructorError(None, None, problem, mark)  # type: ignore[arg-type]


class _Loader(yaml.SafeLoader):
    """SafeLoader without the surprising rules of YAML 1.1."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:  # noqa: N803 - the library's name
        # The library reads up to 1,024 characters ahead, which takes half a second if all of them are brackets.
        if self.flow_level >= _DEPTH_MAX:
            _refuse(_TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        # With aliases a few lines can expand to gigabytes.
        if isinstance(event, yaml.AliasEvent):
            _refuse("aliases (*name) are not allowed", event.start_mark)
        if event.tag not in {None, _STR}:
            # A password may begin with an exclamation mark: what follows it is not shown.
            known = event.tag.startswith("tag:yaml.org,2002:")
            name = event.tag.replace("tag:yaml.org,2002:", "!!")[:40] if known else "!…"
            _refuse(f"tags ({name}) are not allowed; write the value alone, or text in quotes", event.start_mark)
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            _refuse(_TOO_DEEP, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":
                # A key is a name.
                key_node.tag = _STR
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                _refuse("this key is not a string; write it in quotes", key_node.start_mark)
            if key in seen:
                _refuse(f"the key {key[:_NAME_SHOWN]!r} appears twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """A whole number, also in hexadecimal or octal digits, or a floating-point number."""
        text = str(node.value)
        if len(text) > _NUMBER_MAX:
            message = f"a number of {len(text):,} characters; allowed: at most {_NUMBER_MAX}, or text in quotes"
            _refuse(message, node.start_mark)
        if node.tag == _INT:
            return int(text, 0)
        # `.inf` and `.nan` begin with a dot, which Python does not take.
        return float(re.sub(r"\.(?=[iInN])", "", text))

    def refuse_number(self, node: yaml.ScalarNode) -> None:
        """Refuse a number that versions of YAML read differently."""
        message = (
            "this number is read differently by versions of YAML; write it in decimal digits without leading zeros "
            "and underscores, or as text in quotes"
        )
        _refuse(message, node.start_mark)


_Loader.yaml_implicit_resolvers = {}  # not those of YAML 1.1
_Loader.add_implicit_resolver(_UNCLEAR, re.compile(f"(?:{_TWO_NUMBERS})$"), list("-+0123456789"))  # before the numbers
for _tag, _pattern, _first in _PLAIN:
    _Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern})$"), _first)
for _tag in (_INT, _FLOAT):
    _Loader.add_constructor(_tag, _Loader.construct_number)
_Loader.add_constructor(_UNCLEAR, _Loader.refuse_number)


# The library's words for common mistakes, and plainer ones.
_PLAINER = (
    (r"found character '\\t' that cannot start any token", "a tab; indent with spaces"),
    (r"mapping values are not allowed here", "a second colon on the line; write the value in quotes"),
    (r"expected the node content, but found .*", "a value is missing here"),
    (r"expected <block end>, but found .*", "the indentation does not fit the lines above"),
    (r"expected ',' or '(.)', but got .*", r"a comma or the closing \1 is missing here"),
    (r"could not find expected ':'", "a line without a colon, or text whose quotes or indentation do not fit"),
    (r"found unexpected end of stream", "text in quotes without its end"),
    (r"while .*|did not find expected .*", "this cannot be read"),
)


def _in_words(problem: str) -> str:
    return next((found.expand(words) for form, words in _PLAINER if (found := re.fullmatch(form, problem))), problem)


def load_yaml(text: str) -> object:
    """The value of a YAML (or JSON) document.

    Raises:
        ValueError: with the line, the column and the problem there.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = f"{where}{_in_words(str(error.problem))[:_PROBLEM_SHOWN]}"
        raise ValueError(message) from None
    except yaml.YAMLError as error:
        message = str(error).splitlines()[0]
        raise ValueError(message) from None
