"""Counts of files: modules too small to stand alone, crowded folders, names used twice, modules without a unit test."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict

from bench.structure.sources import (
    ENTRY_POINTS,
    Finding,
    Sources,
    base_name,
    imported_modules,
    module_name,
    parse,
    product_modules,
    python_files,
)

_SMALL_LINES = 30
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def small_modules(sources: Sources) -> list[Finding]:
    """Product modules with one importer in the product and fewer than 30 lines of code.

    A line of code is one that is neither blank nor part of a comment or docstring; imports count. `__init__.py` and
    `__main__.py` are not judged, but what they import is imported.
    """
    product = dict(product_modules(sources))
    modules = frozenset(map(module_name, product))
    importers: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in product.items():
        for module in imported_modules(text, modules) - {module_name(path)}:
            importers[module].append(path)
    return [
        Finding(path, 1, f"{lines} lines of code, imported by {importers[module_name(path)][0]} alone", lines)
        for path, text in product.items()
        if base_name(path) not in ENTRY_POINTS
        and len(importers[module_name(path)]) == 1
        and (lines := code_lines(text)) < _SMALL_LINES
    ]


def code_lines(text: str) -> int:
    """How many lines of a Python file hold code: no blank line, comment or docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def flat_folders(sources: Sources) -> list[Finding]:
    """Every product folder with the number of Python files that lie in it itself, `__init__.py` included."""
    folders = Counter(path.rpartition("/")[0] for path, _ in product_modules(sources))
    return [Finding(folder, 1, f"{number} files", number) for folder, number in folders.items()]


def repeated_names(sources: Sources) -> list[Finding]:
    """File names that two or more product modules share; `__init__.py` and `__main__.py` do not count."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, _ in product_modules(sources):
        if base_name(path) not in ENTRY_POINTS:
            places[base_name(path)].append(path)
    return [
        Finding(paths[0], 1, f"{name} also in {', '.join(paths[1:])}", len(paths))
        for name, paths in places.items()
        if len(paths) > 1
    ]


def untested_control(sources: Sources) -> list[Finding]:
    """Modules of `muster/control`, packages' `__init__.py` left out, that no file below `tests/unit` imports itself."""
    control = {
        module_name(path): path
        for path, _ in python_files(sources)
        if path.startswith("muster/control/") and base_name(path) not in ENTRY_POINTS
    }
    tests = [text for path, text in python_files(sources) if path.startswith("tests/unit/")]
    tested = set().union(*(imported_modules(text, frozenset(control)) for text in tests))
    return [Finding(path, 1, "imported by no unit test") for name, path in control.items() if name not in tested]
