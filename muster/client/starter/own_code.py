"""A spec for code that is there already: which function is the trainer, and what it takes. The code is not run."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.client.checks.call_check import Signature
from muster.client.checks.python_modules import locate
from muster.client.checks.python_names import Definition, UnreadableSourceError, names_of, resolve
from muster.client.client_errors import InputError
from muster.contract.spec.hook import Hook
from muster.contract.spec.spec_reader import parse_spec

_CONTEXT = "context"
# LightningCLI makes a Trainer itself.
_TRAINERS = ("Trainer", "LightningCLI")
_LIBRARIES: dict[Hook, set[str]] = {
    "lightning": {"lightning", "pytorch_lightning"},
    "huggingface": {"transformers", "trl"},
}
_USUAL_NAMES = ("train", "main", "run", "fit")


class OwnCodeError(InputError):
    """The code that a spec is to be written for cannot be read."""

    def __init__(self, named: str, reason: str) -> None:
        super().__init__(
            f"--from: found {named!r}: {reason}. Name a file such as train.py, or package.module:function."
        )


@dataclass(frozen=True)
class OwnCode:
    """A trainer with the lines of its kwargs, or a script that is none."""

    trainer: str | None
    kwargs: tuple[str, ...] = ()
    script: str | None = None
    hook: Hook | None = None
    """The library whose Trainer the script makes."""


def read_own_code(named: str, folder: Path) -> OwnCode:
    """What `named` is in `folder`: a Python file, or a trainer as a spec names it.

    Raises:
        OwnCodeError: there is no such file in the folder, or it is not Python.
        SpecError: it is neither a file nor written as module:function.
    """
    try:
        return _of_file(named, folder) if named.endswith(".py") else _of_trainer(named, folder)
    except UnreadableSourceError as error:
        raise OwnCodeError(named, str(error)) from None


def _of_file(named: str, folder: Path) -> OwnCode:
    path = folder / named
    if not path.is_file():
        raise OwnCodeError(named, f"there is no file {path}")
    root, real = folder.resolve(), path.parent.resolve() / path.name
    if not real.is_relative_to(root):
        raise OwnCodeError(named, f"it is outside of {root}, the folder of the spec, whose files are shipped")
    shipped = real.relative_to(root)
    parts = shipped.with_suffix("").parts
    functions = names_of(path).functions()
    takes_context = [name for name, node in functions.items() if _takes_context(node)]
    usual = [name for name in _USUAL_NAMES if name in takes_context]
    function = next(iter([*usual, *takes_context]), None)
    if function is None or not all(part.isidentifier() for part in parts):
        return OwnCode(None, script=shipped.as_posix(), hook=_hook_of(path))
    return _of_trainer(f"{'.'.join(parts)}:{function}", folder)


def _hook_of(path: Path) -> Hook | None:
    """The library that has a hook, if the script imports it and calls something named like its Trainer."""
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules = plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    names = (item.id if isinstance(item, ast.Name) else getattr(item, "attr", "") for item in called)
    if not any(name.endswith(_TRAINERS) for name in names):
        return None
    tops = {name.partition(".")[0] for name in modules}
    return next((hook for hook, packages in _LIBRARIES.items() if tops & packages), None)


def _takes_context(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    positional = [*node.args.posonlyargs, *node.args.args]
    if not positional:
        return False
    note = positional[0].annotation
    annotated = (isinstance(note, ast.Name) and note.id == "Context") or (
        isinstance(note, ast.Attribute) and note.attr == "Context"
    )
    return annotated or positional[0].arg in {_CONTEXT, "ctx"}


def _of_trainer(trainer: str, folder: Path) -> OwnCode:
    parse_spec({"replicas": 1, "trainer": trainer})
    module, _, function = trainer.partition(":")
    found = resolve(folder, module, function) if isinstance(locate(folder, module), Path) else None
    lines = tuple(_kwargs(Signature(found))) if isinstance(found, Definition) else ()
    return OwnCode(trainer, lines)


def _kwargs(signature: Signature) -> Iterator[str]:
    """A line for each parameter: those without a default are to be filled in, the others show it."""
    for name, parameter in signature.keywords.items():
        note = f"   # {ast.unparse(parameter.annotation)}" if parameter.annotation is not None else ""
        default = signature.defaults.get(name)
        if default is None:
            yield f"{name}:{note or '   # to be filled in'}"
            continue
        try:
            yield f"# {name}: {json.dumps(ast.literal_eval(default), ensure_ascii=False)}{note}"
        except (ValueError, TypeError):
            yield f"# {name}:{note}"
