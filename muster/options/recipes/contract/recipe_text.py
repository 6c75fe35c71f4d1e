"""Recipes as YAML: read as the programs read them that run recipes, and written so that every program reads the same.

Those programs use PyYAML, most of them through OmegaConf: `yes` is true, `1e-6` a number and 2026-01-31 text. What they
read as a surprising number (12:30 as 750, 0777 as 511), or as text where YAML 1.2 has a number (-.5), is refused.
"""

from __future__ import annotations

import re

import yaml
from pydantic import JsonValue

from muster.contract.yaml_reader import Rules, UnreadableError, checked_length, read_yaml

TEXT_MAX = 1_048_576
"""Bytes of a recipe's text. The largest public recipes have a hundredth of it."""
NODES_MAX = 50_000
"""Values of a recipe, counted as often as aliases and interpolations repeat them."""
DEPTH_MAX = 32
"""Of mappings and lists in each other."""
NAME_MAX = 256
"""Characters of a key. YAML allows no more than 1,024 on a line."""
_ALIASES_MAX = 256

LITERAL = "# literal: nothing in this file is a placeholder or an interpolation\n"
"""The first line of a recipe whose values hold `${` or `{{` as plain text."""

PLACEHOLDER_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*"
"""The form of a name in `{{name}}`. Other text in braces, such as that of a template for chats, is no placeholder."""

_CONSTANTS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_NUMBER_BEGINS = frozenset("-+.0123456789")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_OTHER_WHOLE = re.compile(r"([-+]?)0(b[01_]*[01][01_]*|x[0-9a-fA-F_]*[0-9a-fA-F][0-9a-fA-F_]*)")
_NUMBER = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
)
_WHOLE_KEY = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NO_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CLOCK = re.compile(r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*")
_UNCLEAR = re.compile(r"[-+]?0[0-9_]+|0o[0-7]+|[-+]\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.[0-9]+[eE][0-9]+")


def _value(text: str) -> object:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    if _WHOLE.fullmatch(text):
        return int(checked_length(text).replace("_", ""))
    if _NUMBER.fullmatch(text):
        return float(checked_length(text).replace("_", ""))
    if _UNCLEAR.fullmatch(text):
        message = (
            "versions of YAML read this number differently; write it in decimal digits, with one digit before the "
            "point and without leading zeros, or as text in quotes"
        )
        raise UnreadableError(message)
    if _CLOCK.fullmatch(text):
        message = "YAML reads this as one number, in base 60; write text in quotes, or the number of seconds"
        raise UnreadableError(message)
    if _OTHER_WHOLE.fullmatch(text):
        return int(checked_length(text).replace("_", ""), 0)
    return float(text.replace(".", "")) if _NO_FINITE.fullmatch(text) else text


def _key(text: str) -> object:
    if text == "<<":
        message = "merge keys (<<) are not allowed; write the values out, or refer to them: ${section.name}"
        raise UnreadableError(message)
    value = _value(text)
    # Public recipes have whole numbers as keys. JSON has none: they are text here, and numbers again in YAML.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_RULES = Rules(
    _value,
    _key,
    depth=DEPTH_MAX,
    name=NAME_MAX,
    aliases=_ALIASES_MAX,
    nodes=NODES_MAX,
    braces=re.compile(PLACEHOLDER_NAME),
    quick=True,
)

# A value that begins with a placeholder without quotes and continues after it, such as `{{folder}}/checkpoints`: YAML
# takes it for a mapping and then fails. In templates it is text. Nothing here is tried twice: a line may be a mebibyte.
_BEGINS_WITH_BRACES = re.compile(
    r"^(\s*+(?:- +)*+(?:[^\s#'\"{}\[\]][^#'\"{}\[\]]*?: +)?)"
    rf"(\{{\{{\s*{PLACEHOLDER_NAME}\s*\}}\}}[^'\"#]*+)((?<=\s)#.*)?$"
)
_BLOCK_TEXT = re.compile(r"(?:^|[:\-] +)[|>][-+0-9]*\s*(?:#.*)?$")


def load_recipe_text(text: str) -> dict[str, JsonValue]:
    """The mapping in the YAML text of a recipe. Parts that aliases repeat are the same objects.

    Raises:
        ValueError: with the line, the column and the problem there.
    """
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_MAX:
        message = f"{size:,} bytes; allowed: at most {TEXT_MAX:,}. Keep data in S3"
        raise ValueError(message)
    try:
        value = read_yaml(text, _RULES)
    except ValueError:
        quoted = _with_quotes(text) if "{{" in text else text
        if quoted == text:
            raise
        value = read_yaml(quoted, _RULES)
    if not isinstance(value, dict):
        message = "this is no mapping of names to values; write a recipe such as training_config: {lr: 0.1}"
        raise ValueError(message)
    return value


def _with_quotes(text: str) -> str:
    lines, block = [], None
    for line in text.split("\n"):
        indentation = len(line) - len(line.lstrip(" "))
        if block is not None and (not line.strip() or indentation > block):
            lines.append(line)
            continue
        block = indentation if _BLOCK_TEXT.search(line) else None
        lines.append(_BEGINS_WITH_BRACES.sub(lambda found: f"{found[1]}'{found[2].rstrip()}' {found[3] or ''}", line))
    return "\n".join(lines)


_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@+-]*(?: [A-Za-z0-9_/.@+-]+)*|s3://[A-Za-z0-9_/.-]+")
_NAMES_OF_VALUES = frozenset(text.lower() for text in _CONSTANTS) | {"y", "n", "inf", "nan"}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # where there is a libyaml
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def is_plain(text: str) -> bool:
    """Whether a text needs no quotes: no version of YAML can take it for anything else."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NAMES_OF_VALUES


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain(text) else '"')


_Dumper.add_multi_representer(str, _text)
_Dumper.add_representer(str, _text)


def recipe_yaml(document: dict[str, JsonValue]) -> str:
    """A recipe as YAML, in its own order: the same values for PyYAML, OmegaConf and `load_recipe_text`.

    A key that is a whole number is written as one: the programs look it up as a number. Interpolations and placeholders
    stay what they are: see `ResolvedRecipe.to_yaml`.
    """
    written = yaml.dump(_with_numbers(document), None, _Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1)
    return str(written)


def _with_numbers(value: JsonValue) -> object:
    if isinstance(value, dict):
        return {int(key) if _WHOLE_KEY.fullmatch(key) else key: _with_numbers(item) for key, item in value.items()}
    return [_with_numbers(item) for item in value] if isinstance(value, list) else value
