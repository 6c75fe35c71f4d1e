"""Defects of the product that an exploration must find: each replaces text that stands once in a file, or a function.

A text that is not there exactly once is an error: a defect cannot silently stop being one.
"""

import importlib
import inspect
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType

from tests.support.source_patch import ROOT, function_in, replaced_once


@dataclass(frozen=True)
class Defect:
    """In `function`, or else anywhere in `file`, `after` instead of `before`."""

    name: str
    file: str
    before: str
    after: str = ""
    function: str = ""
    """Its qualified name in the file."""
    front_end: str = "arrays"
    """Which of a replica's front ends finds it."""

    def applied(self) -> str:
        """The file's text with the defect.

        Raises:
            PatchError: the text that it replaces does not stand there exactly once.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if not self.function:
            return replaced_once(text, self.before, self.after, self.file)
        found, lines = function_in(text, self.function, self.file), text.splitlines(keepends=True)
        place = slice(found.lineno - 1, found.end_lineno)
        sound = textwrap.dedent("".join(lines[place]))
        broken = replaced_once(sound, self.before, self.after, f"{self.file}, {self.function}")
        lines[place] = textwrap.indent(broken, " " * found.col_offset)
        return "".join(lines)

    @property
    def target(self) -> FunctionType:
        """The function, in this process: the one in the file, also where an exploration has wrapped it."""
        module = importlib.import_module(self.file.removesuffix(".py").replace("/", "."))
        found = inspect.unwrap(attrgetter(self.function)(module))
        assert isinstance(found, FunctionType)
        assert found.__code__.co_filename.endswith(self.file), f"{self.function} is not the one in {self.file}"
        return found

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """The function has the defect meanwhile, wherever it was imported."""
        target = self.target
        sound = target.__code__
        target.__code__ = _code(compile(self.applied(), self.file, "exec"), self.function)
        try:
            yield
        finally:
            target.__code__ = sound


def _code(module: CodeType, function: str) -> CodeType:
    """The code of a function in that of its module, or of a class."""
    for found in module.co_consts:
        if isinstance(found, CodeType) and f"{function}.".startswith(f"{found.co_qualname}."):
            return found if found.co_qualname == function else _code(found, function)
    raise LookupError(function)


def read_defects(path: Path) -> tuple[Defect, ...]:
    """The defects in a TOML file, in order."""
    return tuple(Defect(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["defect"])
