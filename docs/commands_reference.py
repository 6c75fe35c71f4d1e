"""docs/commands.md and docs/commands.schema.json, from the command line itself and the models of its answers."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from muster.client import answers
from muster.client.cli import app
from muster.client.exit_codes import MEANINGS
from muster.client.status import RunStatus
from muster.contract.failures import FailureClass
from muster.contract.result import Result
from muster.local.commands import command_answers as local_answers
from muster.local.commands.command_answers import STATE_HELP

SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"

ANSWERS: dict[str, type[BaseModel]] = {
    "init": answers.SpecWritten,
    "plan": answers.Forecast,
    "launch": answers.Started,
    "launch --watch": RunStatus,
    "status": RunStatus,
    "status --watch": RunStatus,
    "list": answers.Runs,
    "logs": answers.LoggedLine,
    "events": answers.Happenings,
    "cancel": answers.Cancelled,
    "rerun": answers.GoesOn,
    "rerun --watch": RunStatus,
    "result": Result,
    "report": answers.PageWritten,
    "ui": answers.PageServed,
    "doctor": answers.Strays,
    "local up": local_answers.CloudUp,
    "local status": local_answers.CloudUp,
    "local env": local_answers.CloudVariables,
    "local down": local_answers.CloudDown,
    "faults list": local_answers.FaultList,
    "faults clear": local_answers.FaultsCleared,
}
"""What each command prints with --json."""

PLACED_FAULT = local_answers.FaultList
"""What every other command of `muster faults` prints: the fault that it has placed."""

PASSES_ON = "local exec"
"""Prints what the program prints that it runs."""

# Told once for all commands.
_COMMON = {"--help", "--json", "--stack", "--profile", "--region"}
_COLUMNS = ["| | value | default | meaning |", "|---|---|---|---|"]
# Answers that are printed once for each of something, one to a line.
_LINES = {"launch --watch": "status", "status --watch": "status", "rerun --watch": "status", "logs": "line"}

_HEAD = """# Commands

*Made from the commands and the models of their answers by `python -m docs.generate`; a test holds that it is up to
date.*

How they are used: [running.md](running.md). What a person reads may change from one version to the next. What scripts
read does not: exit codes, the fields below, and their meaning. A later version may add fields.

| option of | | meaning |
|---|---|---|
| `muster` itself | `--version` | the version that is installed |
| every command | `--help` | its arguments and options |
| every command but `local exec` | `--json` | prints JSON |
| those that ask a stack | `--stack` | the CloudFormation stack; else `MUSTER_STACK`, else `Muster` |
| | `--profile` | the AWS profile; else as the AWS CLI |
| | `--region` | the AWS region; else `AWS_REGION`, else as the AWS CLI |
| `local …`, `faults …` | `--state` | the folder with the state of the embedded cloud; else `.muster` here |

## Exit codes

{codes}

Bad input is told before anything is called. An error is one line on standard error, which begins with `muster: `; that
of a spec is followed by a line for each of its problems, and a command line that cannot be read is told in a box.

## With --json

A command prints one JSON document on one line of standard output. A watch prints one such line for each status that
differs from the last, `logs` one for each line of a replica. Every field is always there; what is not known is null.
Times are ISO 8601 with their offset from UTC. [commands.schema.json](commands.schema.json) is the same as JSON Schema,
one definition for each name.

With an error the document is a [Failed](#failed), and what people read stands on standard error nevertheless. A run
that was asked for and has failed is no error: it is the answer, and the exit code is 1.

## In a terminal

While a command waits for the cloud it says so on standard error, where that is a terminal. `NO_COLOR=1` takes the
colours away. Ctrl-C of a watch, of `logs -f` or of `ui` leaves the run alone.

`muster --install-completion` teaches bash, zsh or fish the commands, the options and the names of runs;
`--show-completion` prints what that would write. For a run's name the Tab key asks the stack, with the shell's
credentials and for a few seconds at most; where that fails nothing is completed.
"""


def commands_reference() -> str:
    """The text of docs/commands.md."""
    codes = "\n".join(["| code | meaning |", "|---|---|", *(f"| {int(c)} | {text} |" for c, text in MEANINGS.items())])
    parts = [_HEAD.format(codes=codes)]
    parts += [_command(path, command) for path, command in commands()]
    parts.append("## Answers\n")
    parts += [_answer(model) for model in _models()]
    return "\n".join(parts)


def commands_schema() -> str:
    """The text of docs/commands.schema.json."""
    _, schema = models_json_schema(
        [(model, "serialization") for model in _models()],
        title="What the commands of muster print with --json",
        description="Made by `python -m docs.generate`; docs/commands.md says which command prints which.",
    )
    return json.dumps({"$schema": SCHEMA_URL, **schema}, indent=1, ensure_ascii=False) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words, in the order of --help, those of the mounted groups behind them."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("muster", [], resilient_parsing=True)
    groups = {}
    for name in root.list_commands(context):
        command = root.get_command(context, name).make_context(name, [], context, resilient_parsing=True).command
        if hasattr(command, "list_commands"):
            groups[name] = command
        else:
            yield name, command
    for name, group in groups.items():
        for inner in group.list_commands(context):
            yield f"{name} {inner}", group.get_command(context, inner)


def answer_of(path: str) -> type[BaseModel]:
    """What a command prints with --json."""
    return ANSWERS.get(path, PLACED_FAULT)


def _command(path: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(["muster", path, *(_usage(argument) for argument in arguments)])
    rows = [_row(param) for param in command.params if not param.hidden and not _is_common(param)]
    table = [*_COLUMNS, *rows, ""] if rows else []
    return "\n".join([f"## muster {path}\n", f"{_sentence(command.help)}\n", f"`{usage}`\n", *table, _prints(path)])


def _is_common(param: Any) -> bool:
    if "--region" in param.opts:
        # That of `local up` is what the embedded cloud plays.
        return bool(param.envvar == "AWS_REGION")
    return bool({*param.opts} & _COMMON) or param.help == STATE_HELP


def _usage(argument: Any) -> str:
    name = _metavar(argument) + (" …" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _row(param: Any) -> str:
    is_argument = param.param_type_name == "argument"
    name = _metavar(param) if is_argument else ", ".join([*param.opts, *param.secondary_opts])
    variable = f" (or `{param.envvar}`)" if param.envvar else ""
    cells = (f"`{name}`", _value(param), _default(param), f"{_sentence(param.help or '')}{variable}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return "–"
    text = _type(param.type_descriptor.annotation)
    least = "" if param.min is None else f", at least {param.min:,}"
    most = "" if param.max is None else f", at most {param.max:,}"
    return f"{text}{least}{most}"


def _default(param: Any) -> str:
    if param.required:
        return "**required**"
    default = param.default
    if default is None or default is False or default == ():
        return "–"
    if default is True:
        return f"`{param.opts[0]}`"
    return f"`{default}`"


def _prints(path: str) -> str:
    if path == PASSES_ON:
        return "Takes no `--json`: it prints what the program prints, and ends as it does.\n"
    told = [f"With `--json`: {_one(path)}"]
    if f"{path} --watch" in ANSWERS:
        told.append(f"with `--watch` {_one(f'{path} --watch')}")
    return f"{'; '.join(told)}.\n"


def _one(path: str) -> str:
    name = answer_of(path).__name__
    link = f"[{name}](#{name.lower()})"
    return f"a {link} for each {_LINES[path]}" if path in _LINES else f"one {link}"


def _models() -> list[type[BaseModel]]:
    """The answers and what they are made of, each once, in the order in which they are met."""
    pending: list[type[BaseModel]] = [answers.Failed, *ANSWERS.values()]
    found: dict[str, type[BaseModel]] = {}
    while pending:
        model = pending.pop(0)
        if model.__name__ in found:
            continue
        found[model.__name__] = model
        pending[:0] = [inner for field in model.model_fields.values() for inner in _inner(field.annotation)]
    return list(found.values())


def _inner(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _inner(argument)


def _answer(model: type[BaseModel]) -> str:
    first = (model.__doc__ or "").splitlines()[0]
    rows = [
        f"| `{name}` | {_type(field.annotation)} | {field.description or ''} |"
        for name, field in model.model_fields.items()
    ]
    table = "\n".join(["| field | value | meaning |", "|---|---|---|", *rows])
    return f"### {model.__name__}\n\n{first}\n\n{table}\n"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(_type(argument) for argument in arguments)
    if origin in {list, tuple}:
        inner = _type(arguments[0])
        return f"list of ({inner})" if " or " in inner else f"list of {inner}"
    if origin is dict:
        return f"mapping of {_type(arguments[0])} to {_type(arguments[1])}"
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    return _plain(annotation)


def _plain(annotation: Any) -> str:
    if annotation is FailureClass:
        return "[failure class](failures.md)"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    words = {
        types.NoneType: "null",
        Path: "path",
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true or false",
        Any: "JSON value",
    }
    return words[annotation]
