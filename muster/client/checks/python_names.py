"""What the names of a module stand for, from its syntax tree. Nothing is imported or run."""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import resolve_name
from pathlib import Path

from muster.client.checks.check_findings import place
from muster.client.checks.python_modules import locate

Function = ast.FunctionDef | ast.AsyncFunctionDef
# A module that calls one of these may have names that its text does not show.
_DYNAMIC = {"eval", "exec", "globals", "locals", "setattr", "vars"}
_BLOCKS = ast.If | ast.Try | ast.TryStar | ast.For | ast.While | ast.With | ast.Match
_HOPS_MAX = 16  # of re-exports: more is a cycle
# A syntax tree takes hundreds of times the memory of its text: a larger file holds data, or was generated.
_TEXT_BYTES_MAX = 512 * 1024


class UnreadableSourceError(Exception):
    """A file that is no Python source for this interpreter."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        super().__init__(f"{place(path, line)} is not valid Python: {reason}")


@dataclass(frozen=True)
class Binding:
    """A place where a module binds a name. `nested`: inside of an if, a try or a loop."""

    node: ast.AST
    nested: bool


@dataclass
class ModuleNames:
    """The names that a module binds at its top level."""

    path: Path
    bindings: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list))
    dynamic: bool = False
    """Whether it may have other names as well."""

    def functions(self) -> dict[str, Function]:
        """Those of its names that are functions, as they were defined last."""
        found = {name: places[-1].node for name, places in self.bindings.items()}
        return {name: node for name, node in found.items() if isinstance(node, Function)}

    def is_own(self, name: str) -> bool:
        """Whether the module itself says what `name` is, so that it may be no builtin or name of `typing`."""
        return any(not _is_typing(place.node) for place in self.bindings.get(name, []))


@dataclass(frozen=True)
class Definition:
    """A function, and the module that defines it."""

    names: ModuleNames
    node: Function


@dataclass(frozen=True)
class NoSuchName:
    """A name that a module certainly does not have."""

    names: ModuleNames
    name: str


def names_of(path: Path) -> ModuleNames:
    """Read a module's names. Of one that is too large or too deep to be read here, it may have any.

    Raises:
        UnreadableSourceError: it is not the source of a module.
    """
    try:
        if path.stat().st_size > _TEXT_BYTES_MAX:
            return ModuleNames(path, dynamic=True)
        with warnings.catch_warnings(action="ignore"):  # such as those of invalid escapes
            tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise UnreadableSourceError(path, error.lineno or None, error.msg) from None
    except (OSError, ValueError) as error:
        raise UnreadableSourceError(path, None, str(error)) from None
    except (RecursionError, MemoryError):
        # The limits of a tree are not those of an import.
        return ModuleNames(path, dynamic=True)
    names = ModuleNames(path)
    for statement in tree.body:
        for name, node in _bound(statement):
            names.bindings[name].append(Binding(node, isinstance(statement, _BLOCKS)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            for name in node.names:
                names.bindings[name].append(Binding(node, nested=True))
        elif _makes_names(node):
            names.dynamic = True
    names.dynamic = names.dynamic or bool({"__getattr__", "*"} & names.bindings.keys())
    return names


def _makes_names(node: ast.AST) -> bool:
    """Whether names may come from here that no statement binds.

    That is `sys.modules`, a call such as `globals()`, and one that is given the module's own name, except for a logger.
    """
    if isinstance(node, ast.Attribute):
        return node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id in _DYNAMIC:
        return True
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    named = any(isinstance(item, ast.Name) and item.id == "__name__" for item in given)
    return named and "logger" not in callee.lower()


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement binds, with what binds them; not those inside of its functions and classes."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                whole = alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]
                yield alias.asname or whole, node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        elif isinstance(node, ast.MatchAs) and node.name is not None:
            yield node.name, node
        if not isinstance(node, ast.Lambda):
            pending += ast.iter_child_nodes(node)


def resolve(root: Path, module: str, name: str, hops: int = _HOPS_MAX) -> Definition | NoSuchName | None:
    """What `module:name` is if `root` is on the path and holds the module; re-exports are followed.

    None: its signature is not in the text, for it is a class, an object, or a function that is imported or bound twice.

    Raises:
        UnreadableSourceError: a module on the way is not Python source.
    """
    path = locate(root, module)
    if not isinstance(path, Path) or hops == 0:
        return None
    names = names_of(path)
    is_package = path.name == "__init__.py"
    found = names.bindings.get(name, [])
    if not found:
        submodule = is_package and isinstance(locate(root, f"{module}.{name}"), Path)
        return None if names.dynamic or submodule else NoSuchName(names, name)
    node = found[0].node
    if isinstance(node, Function) and len(found) == 1:
        return Definition(names, node)
    if not isinstance(node, ast.ImportFrom) or found[0].nested or len(found) > 1:
        return None
    target = _imported_module(node, module if is_package else module.rpartition(".")[0])
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
    if target is None or isinstance(locate(root, f"{target}.{original}"), Path):
        return None  # from outside of the source, or a module
    return resolve(root, target, original, hops - 1)


def _imported_module(node: ast.ImportFrom, package: str) -> str | None:
    try:
        return resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:  # beyond the topmost package
        return None


def _is_typing(node: ast.AST) -> bool:
    known = {"typing", "typing_extensions", "collections.abc", "builtins"}
    return isinstance(node, ast.ImportFrom) and node.module in known
