"""Whether a function can be called as `function(context, **kwargs)`, by its text."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from muster.client.checks.check_findings import place
from muster.client.checks.checked_program import Program
from muster.client.checks.parameter_types import misfit
from muster.client.checks.python_names import Definition
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.private_values import kind_of, without_value

# What no context is.
_SCALARS = {"bool", "bytes", "complex", "dict", "float", "int", "list", "set", "str", "tuple"}


@dataclass(frozen=True)
class Signature:
    """The parameters of a function. The first positional one is the context's."""

    definition: Definition

    @property
    def name(self) -> str:
        """The function, and where it is defined."""
        return f"{self.definition.node.name} ({place(self.definition.names.path, self.definition.node.lineno)})"

    @cached_property
    def positional(self) -> list[ast.arg]:
        """What can be passed by position."""
        arguments = self.definition.node.args
        return [*arguments.posonlyargs, *arguments.args]

    @cached_property
    def others(self) -> list[ast.arg]:
        """All parameters except the context's."""
        return [*self.positional[1:], *self.definition.node.args.kwonlyargs]

    @cached_property
    def keywords(self) -> dict[str, ast.arg]:
        """Those of them that can be passed by name."""
        by_position = self.definition.node.args.posonlyargs
        return {item.arg: item for item in self.others if item not in by_position}

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        """The defaults, by parameter."""
        arguments = self.definition.node.args
        last = self.positional[len(self.positional) - len(arguments.defaults) :]
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return {
            **{item.arg: value for item, value in zip(last, arguments.defaults, strict=True)},
            **{item.arg: value for item, value in named if value is not None},
        }

    def takes_null(self, name: str) -> bool:
        """Whether null is a parameter's own default, whatever its annotation says."""
        default = self.defaults.get(name)
        return isinstance(default, ast.Constant) and default.value is None


def call_problems(program: Program, found: Definition) -> Iterator[Problem]:
    """What would keep the call from working. A decorator may change all of it, so then nothing is known.

    A trainer that brings its own loop is called with what its parameters name, which is checked in the replica.
    """
    node, signature = found.node, Signature(found)
    if node.decorator_list or program.brings_loop:
        return
    if isinstance(node, ast.AsyncFunctionDef):
        yield StatedProblem("trainer", f"{signature.name} is an async function", "write def without async")
        return
    if _is_generator(node):
        statement = f"{signature.name} contains yield, so calling it runs nothing"
        yield StatedProblem("trainer", statement, "move the yield into a function of its own")
        return
    if signature.positional:
        first = signature.positional[0]
        if _is_no_context(signature, first, program):
            statement = f"{signature.name} is given the context as its first argument, {first.arg}"
            yield StatedProblem("trainer", statement, f"write def {node.name}(context, {first.arg}, …)")
            return
    elif node.args.vararg is None:
        statement = f"{signature.name} takes no positional argument"
        yield StatedProblem("trainer", statement, f"write def {node.name}(context, …): the context comes first")
    yield from _keyword_problems(program, signature)


def _is_generator(node: ast.FunctionDef) -> bool:
    pending: list[ast.AST] = list(node.body)
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(item)
    return False


def _is_no_context(signature: Signature, first: ast.arg, program: Program) -> bool:
    """Whether the first parameter is one of the user's values: `kwargs` has it, or it is annotated as a number."""
    note, names = first.annotation, signature.definition.names
    scalar = isinstance(note, ast.Name) and note.id in _SCALARS and not names.is_own(note.id)
    return scalar or (first.arg in program.kwargs and first not in signature.definition.node.args.posonlyargs)


def _keyword_problems(program: Program, signature: Signature) -> Iterator[Problem]:
    meant: set[str] = set()
    for key, value in program.kwargs.items():
        field = f"{'sweep.' if key in program.swept else ''}kwargs.{without_value(key)}"
        if (parameter := signature.keywords.get(key)) is not None:
            expected = misfit(parameter.annotation, value, signature.definition.names.is_own)
            if expected is not None and not (value is None and signature.takes_null(key)):
                yield Problem(field, kind_of(value), "correct the value", f"{signature.name} takes {expected}")
        elif signature.definition.node.args.kwarg is None:
            near = difflib.get_close_matches(key, list(signature.keywords), n=1, cutoff=0.5)
            listed = ", ".join(signature.keywords)
            others = f"its parameters are {listed}" if listed else "remove it: the function takes the context alone"
            meant.update(near)
            yield StatedProblem(
                field, f"{signature.name} has no such parameter", f"did you mean {near[0]}?" if near else others
            )
    for item in signature.others:
        # What is missing is not reported where it is there, misspelled.
        if item.arg not in signature.defaults.keys() | meant | program.kwargs.keys():
            remedy = "add it" if item.arg in signature.keywords else "make it a keyword parameter, and add it"
            yield StatedProblem(f"kwargs.{item.arg}", f"missing; {signature.name} requires it", remedy)
