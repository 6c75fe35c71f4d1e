"""Counts of what product code defines: parameters and length of functions, `Any`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bench.structure.sources import Finding, Sources, parse, product_modules

_PARAMETERS = 5
_LONG = 50

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def many_parameters(sources: Sources) -> list[Finding]:
    """Functions with more than 5 parameters: keyword-only ones count; `self`, `cls`, `*rest`, `**rest` do not."""
    counted = ((path, function, _parameters(function)) for path, function in _functions(sources))
    return [
        Finding(path, function.lineno, f"{function.name}: {number} parameters", number)
        for path, function, number in counted
        if number > _PARAMETERS
    ]


def function_lengths(sources: Sources) -> list[Finding]:
    """Every function with its lines from `def` to the last one, docstring included, decorators not."""
    lengths = ((path, at, (at.end_lineno or at.lineno) - at.lineno + 1) for path, at in _functions(sources))
    return [Finding(path, at.lineno, f"{at.name}: {lines} lines", lines) for path, at, lines in lengths]


def long_functions(sources: Sources) -> list[Finding]:
    """Functions of more than 50 lines."""
    return [found for found in function_lengths(sources) if found.size > _LONG]


def uses_of_any(sources: Sources) -> list[Finding]:
    """Every use of the name `Any` in code; its import, comments and strings are none."""
    return [
        Finding(path, node.lineno, text.splitlines()[node.lineno - 1].strip())
        for path, text in product_modules(sources)
        for node in ast.walk(parse(text))
        if (isinstance(node, ast.Name) and node.id == "Any") or (isinstance(node, ast.Attribute) and node.attr == "Any")
    ]


def _functions(sources: Sources) -> Iterator[tuple[str, _Function]]:
    for path, text in product_modules(sources):
        for node in ast.walk(parse(text)):
            if isinstance(node, _Function):
                yield path, node


def _parameters(function: _Function) -> int:
    named = [*function.args.posonlyargs, *function.args.args]
    bound = bool(named) and named[0].arg in {"self", "cls"}
    return len(named) - bound + len(function.args.kwonlyargs)
