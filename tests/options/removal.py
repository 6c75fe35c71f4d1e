"""What goes with an option: all that needs it outside the core, computed from imports, names and fixtures."""

import ast
import re
import shutil
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

from bench.structure.sources import imported_modules, module_name, parse, python_files, read_sources
from tests.support.source_patch import ROOT

OPTIONS = "muster/options"
_BESIDE = ("tests/", "bench/", "docs/", "examples/")
WHOLE_TREE = {
    "tests/unit/docs/": "the documents describe every option",
    "tests/unit/test_structure.py": "it asks git, which does not know the copy",
}
"""Tests that hold the whole tree against itself, each with why it goes with any option."""
ADDITIONS = {
    **{
        f"muster/options/{option}/client/checks.py": "verify alone asks for it, and it is written in verify's words"
        for option in ("hyperpod", "places")
    },
}
"""What one option adds to another one, each with why it goes with an option that it imports."""


def option_names() -> list[str]:
    """The options that there are."""
    return sorted(path.parent.name for path in (ROOT / OPTIONS).glob("*/__init__.py"))


def remove(copy: Path, options: Iterable[str]) -> set[str]:
    """Remove these options from a copy of the tree, with what needs them outside the core.

    The core keeps its files, whatever they need: that it does without is to be shown.

    Returns:
        the removed files beside the options' own.
    """
    folders = tuple(f"{OPTIONS}/{name}/" for name in options)
    needed = _needed()
    gone = {path for path in needed if path.startswith(folders)}
    beside = {path for path in needed if _is_beside(path)}
    gone |= {path for path in beside if path.startswith(tuple(WHOLE_TREE))}
    more = gone
    while more:
        lost = _fixtures(gone) - _fixtures(beside - gone)
        more = {path for path in beside - gone if needed[path] & gone or _arguments(path) & lost}
        gone = gone | more
    for path in gone:
        (copy / path).unlink()
    for folder in folders:
        shutil.rmtree(copy / folder)
    return {path for path in gone if not path.startswith(folders)}


def _is_beside(path: str) -> bool:
    """Whether a file goes with an option that it needs: tests, programs beside the core, and public facades."""
    folder, _, name = path.rpartition("/")
    return path.startswith(_BESIDE) or path in ADDITIONS or (folder == "muster" and name != "__init__.py")


@cache
def _texts() -> dict[str, str]:
    return dict(python_files(read_sources(ROOT)))


@cache
def _needed() -> dict[str, set[str]]:
    """For each file those that it imports, or names in a text as a module: a program, a trainer, a patched name."""
    modules = {module_name(path): path for path in _texts()}
    known = frozenset(modules)
    named = known - {name for name, path in modules.items() if path.endswith("/__init__.py")}
    return {
        path: {modules[name] for name in imported_modules(text, known) | (_named_modules(text) & named)}
        for path, text in _texts().items()
    }


def _named_modules(text: str) -> set[str]:
    """The dotted names in texts, such as `muster.own_loop` in `muster.own_loop:train`, and those without their end."""
    nodes = (node for node in ast.walk(parse(text)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    names = {name for node in nodes for name in re.findall(r"\w+(?:\.\w+)+", node.value)}
    return names | {name.rpartition(".")[0] for name in names}


def _fixtures(paths: Collection[str]) -> set[str]:
    """The fixtures that these files share with tests in others."""
    shared = (path for path in paths if path.startswith("tests/plugins/") or path.endswith("/conftest.py"))
    return {
        node.name
        for path in shared
        for node in ast.walk(parse(_texts()[path]))
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(by) for by in node.decorator_list)
    }


@cache
def _arguments(path: str) -> set[str]:
    """The names by which a file of tests asks others for fixtures: no own fixture, nor a parameter, named in a text."""
    if not path.startswith("tests/"):
        return set()
    nodes = list(ast.walk(parse(_texts()[path])))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    asked = {argument.arg for function in functions for argument in function.args.args}
    return asked - {function.name for function in functions} - {name for text in texts for name in text.split(", ")}
