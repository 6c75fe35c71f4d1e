"""Whether a value of a spec fits a parameter's annotation, as far as the annotation alone says it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable

_Allowed = frozenset["str | tuple[str, object]"]

_KINDS: dict[str, _Allowed] = {
    **{name: frozenset({name}) for name in ("bool", "int", "str")},
    "float": frozenset({"int", "float"}),
    # A list of the spec is passed where one of these is asked for, and a string is a sequence as well.
    **dict.fromkeys(("list", "List", "tuple", "Tuple"), frozenset({"list"})),
    **dict.fromkeys(("Sequence", "Iterable", "Collection"), frozenset({"list", "str"})),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), frozenset({"dict"})),
}
"""The kinds of values that a name takes."""
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "dict": "a mapping",
    "none": "null",
}
_MODULES = {"typing", "t", "builtins", "collections.abc"}

Shadowed = Callable[[str], bool]
"""Whether a module itself binds this name, so that it does not mean what it means elsewhere."""


def misfit(annotation: ast.expr | None, value: object, shadowed: Shadowed) -> str | None:
    """What a parameter takes, in words, if `value` certainly does not fit its annotation; None if it may."""
    try:
        allowed = None if annotation is None else _allowed(annotation, shadowed)
    except RecursionError:
        return None
    if not allowed or _fits(value, allowed):
        return None
    words = [repr(item[1]) if isinstance(item, tuple) else _WORDS[item] for item in sorted(allowed, key=str)]
    if "float" in allowed and "int" in allowed:
        words.remove(_WORDS["int"])
    return " or ".join(words)


def _fits(value: object, allowed: _Allowed) -> bool:
    if isinstance(value, bool):
        kinds = {"bool", "int"}
    elif isinstance(value, int):
        # 0 and 1 work wherever a truth value does.
        kinds = {"int", "bool"} if value in {0, 1} else {"int"}
    else:
        names = {float: "float", str: "str", list: "list", dict: "dict", type(None): "none"}
        kinds = {names.get(type(value), "")}
        if not kinds - {""}:
            return True
    return bool(kinds & allowed) or any(
        isinstance(item, tuple) and type(item[1]) is type(value) and item[1] == value for item in allowed
    )


def _allowed(node: ast.expr, shadowed: Shadowed) -> _Allowed | None:
    """The kinds of values that an annotation takes, and single values; None where that is not known."""
    if isinstance(node, ast.Constant):
        return _constant(node, shadowed)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([node.left, node.right], shadowed)
    name = _name(node, shadowed)
    if name is not None:
        return _KINDS.get(name)
    return _subscript(node, shadowed) if isinstance(node, ast.Subscript) else None


def _constant(node: ast.Constant, shadowed: Shadowed) -> _Allowed | None:
    if node.value is None:
        return frozenset({"none"})
    if not isinstance(node.value, str):
        return None
    try:
        return _allowed(ast.parse(node.value, mode="eval").body, shadowed)
    except (SyntaxError, MemoryError):
        return None


def _subscript(node: ast.Subscript, shadowed: Shadowed) -> _Allowed | None:
    name = _name(node.value, shadowed)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Optional":
        return _union([node.slice, ast.Constant(None)], shadowed)
    if name == "Union":
        return _union(items, shadowed)
    if name == "Annotated":
        return _allowed(items[0], shadowed) if items else None
    if name == "Literal":
        if not all(isinstance(item, ast.Constant) for item in items):
            return None
        return frozenset(("value", item.value) for item in items if isinstance(item, ast.Constant))
    return _KINDS.get(name or "")


def _union(items: list[ast.expr], shadowed: Shadowed) -> _Allowed | None:
    found: _Allowed = frozenset()
    for item in items:
        one = _allowed(item, shadowed)
        if one is None:
            return None
        found |= one
    return found


def _name(node: ast.expr, shadowed: Shadowed) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _MODULES:
        return node.attr
    return node.id if isinstance(node, ast.Name) and not shadowed(node.id) else None
