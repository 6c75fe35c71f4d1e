"""Counts of files: modules too small to stand alone, crowded folders, names used twice."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable

from bench.structure.sources import (
    ENTRY_POINTS,
    Finding,
    Sources,
    base_name,
    imported_modules,
    module_name,
    parse,
    product_modules,
)

_SMALL_LINES = 30
_SHORT = 40
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def file_lines(sources: Sources, belongs: Callable[[str], bool]) -> list[Finding]:
    """Every product file that belongs, with its lines, blank ones included."""
    found = ((path, text.count("\n")) for path, text in product_modules(sources) if belongs(path))
    return [Finding(path, 1, f"{lines} lines", lines) for path, lines in found]


def short_files(sources: Sources) -> list[Finding]:
    """Product files of fewer than 40 lines; those that open a package do not count."""
    found = file_lines(sources, lambda path: base_name(path) not in ENTRY_POINTS)
    return [one for one in found if one.size < _SHORT]


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
    """File names that two or more product modules share.

    `__init__.py` and `__main__.py` do not count, nor where options offer something: the seam gives the module its name.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in product_modules(sources):
        if base_name(path) not in ENTRY_POINTS and "\nOFFER" not in text:
            places[base_name(path)].append(path)
    return [
        Finding(paths[0], 1, f"{name} also in {', '.join(paths[1:])}", len(paths))
        for name, paths in places.items()
        if len(paths) > 1
    ]
