"""Changes to the source, each at the one place that it names, and copies of the tree that have them."""

import ast
import itertools
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not held by git, and the same for every copy. A kernel of another source than the copy's is not loaded.
_INSTALLED = (".venv", "node_modules", "muster/replica/kernel/kernel-*.so")
_times = itertools.count(1)


class PatchError(Exception):
    """A patch does not fit the source: the code that it names has changed."""


def replaced_once(text: str, before: str, after: str, where: str) -> str:
    """`text` with `after` instead of `before`; `where` says in an error whose text it is.

    Raises:
        PatchError: `before` is not there exactly once.
    """
    _check_once(text.count(before), before, where)
    return text.replace(before, after)


def _check_once(count: int, before: str, where: str) -> None:
    if count != 1:
        message = f"{where}: this code is there {count} times, not once:\n{before}"
        raise PatchError(message)


@dataclass(frozen=True)
class Patch:
    """Code that takes the place of other code in a function.

    `before` is consecutive statements, or one expression, that stand exactly once in `function`. Syntax trees are
    compared, so formatting and comments do not matter.
    """

    file: str
    function: str
    """Its qualified name in the file, such as `Sweep.run`."""
    before: str
    after: str

    def applied_to(self, source: str) -> str:
        """The source with the patch.

        Raises:
            PatchError: the code is not there exactly once.
        """
        wanted = ast.parse(textwrap.dedent(self.before)).body
        places = list(_places(function_in(source, self.function, self.file), wanted))
        _check_once(len(places), self.before, f"{self.file}, {self.function}")
        first, last = places[0][0], places[0][-1]
        text, after = source.encode(), textwrap.dedent(self.after).strip()
        if isinstance(first, ast.stmt):
            after = textwrap.indent(after, " " * first.col_offset).lstrip()
        begin = _offset(text, first.lineno, first.col_offset)
        end = _offset(text, last.end_lineno or 0, last.end_col_offset or 0)
        return (text[:begin] + after.encode() + text[end:]).decode()


def function_in(source: str, name: str, file: str) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef:
    """The function (or class) of a qualified name, such as `Sweep.run`.

    Raises:
        PatchError: the file has none.
    """
    found: ast.AST = _tree(source)
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inner = next((node for node in ast.walk(found) if isinstance(node, kinds) and node.name == part), None)
        if inner is None:
            message = f"{file} has no {name}."
            raise PatchError(message)
        found = inner
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return found


_tree = lru_cache(8)(ast.parse)
"""Many patches are of the same few files; nobody changes a tree."""


def _places(function: ast.AST, wanted: list[ast.stmt]) -> Iterator[list[ast.stmt] | list[ast.expr]]:
    """Where `wanted` stands in `function`: a row of statements, or the expression that is its only one."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for index in range(len(block) - len(wanted) + 1):
                part = block[index : index + len(wanted)]
                if all(map(_is_same, part, wanted)):
                    yield part
    if len(wanted) == 1 and isinstance(wanted[0], ast.Expr):
        whole = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}
        for node in ast.walk(function):
            # An expression that is a statement by itself was found above.
            if isinstance(node, ast.expr) and id(node) not in whole and _is_same(node, wanted[0].value):
                yield [node]


def _is_same(node: ast.AST, other: ast.AST) -> bool:
    return type(node) is type(other) and ast.dump(node) == ast.dump(other)


def _offset(text: bytes, line: int, column: int) -> int:
    return sum(len(row) for row in text.splitlines(keepends=True)[: line - 1]) + column


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the tree, without what git ignores; what is installed is shared."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory(prefix="muster-patched-") as folder:
        copy = Path(folder)
        for name in filter(None, names):
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
        for path in itertools.chain.from_iterable(map(ROOT.glob, _INSTALLED)):
            (copy / path.relative_to(ROOT)).symlink_to(path)
        yield copy


@contextmanager
def patched(copy: Path, patch: Patch) -> Iterator[None]:
    """The copy with the patch, as long as the context lasts."""
    path = copy / patch.file
    source, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(patch.applied_to(source), encoding="utf-8")
    # Bytecode knows its source by size and time, in seconds: no version of the file may have the time of another one.
    os.utime(path, (0, next(_times)))
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
