"""YAML without surprises: values are read as in YAML 1.2, a key appears once, and there are no aliases, tags or dates.

YAML 1.1, which the library follows, reads 12:30 as 750, 0777 as 511 and `no` as false. YAML 1.2 does not. What the two
read as different numbers is refused.
"""

from __future__ import annotations

import re

from muster.contract.yaml_reader import Rules, UnreadableError, checked_length, read_yaml

# The core schema of YAML 1.2: what a value without quotes is. The rest is text.
_CONSTANTS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# `.inf` and `.nan` begin with a dot, which Python does not take.
_NO_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# 0777 and 0b11 are other numbers in YAML 1.1, and 1_000 is text in YAML 1.2.
_TWO_NUMBERS = re.compile(r"[-+]?(0[0-9_]+|0b[01_]+|0x[0-9a-fA-F_]*_[0-9a-fA-F_]*|[1-9][0-9]*_[0-9_]*)")
_NUMBER_BEGINS = frozenset("-+.0123456789")


def _value(text: str) -> object:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    if _TWO_NUMBERS.fullmatch(text):
        message = (
            "this number is read differently by versions of YAML; write it in decimal digits without leading zeros "
            "and underscores, or as text in quotes"
        )
        raise UnreadableError(message)
    if _WHOLE.fullmatch(text):
        return int(checked_length(text), 0)
    if _NUMBER.fullmatch(text):
        return float(checked_length(text))
    return float(text.replace(".", "")) if _NO_FINITE.fullmatch(text) else text


def _key(text: str) -> object:
    # A key is a name.
    value = _value(text)
    return text if isinstance(value, bool) else value


_RULES = Rules(_value, _key)


def load_yaml(text: str) -> object:
    """The value of a YAML (or JSON) document.

    Raises:
        ValueError: with the line, the column and the problem there.
    """
    return read_yaml(text, _RULES)
