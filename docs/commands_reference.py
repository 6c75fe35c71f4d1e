"""Generates docs/commands.md, docs/json.md and docs/commands.schema.json from the command line and its answers."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel, JsonValue
from pydantic.json_schema import models_json_schema

from muster import (
    Cancellation,
    Comparison,
    DeadLetters,
    Dropped,
    DryRun,
    FailureClass,
    FetchedModel,
    LogLine,
    Replay,
    Result,
    RunStatus,
    Scaled,
)
from muster.client.cli import json_answers as answers
from muster.client.cli.exit_codes import MEANINGS
from muster.client.cli.program import app
from muster.contract.timestamps import Timestamp
from muster.infra.deploy import deploy_answers
from muster.local.commands import command_answers as local_answers
from muster.local.commands.command_answers import STATE_HELP
from muster.options.places.local.commands import LinkList
from muster.options.recipes.client import recipe_answers
from muster.options.recipes.client.catalog import RecipeCatalog
from muster.options.verify.client.check_outcomes import Verification
from muster.recipes import RecipeTemplate

SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"

ANSWERS: dict[str, type[BaseModel]] = {
    "deploy": deploy_answers.Deployment,
    "template": deploy_answers.TemplateWritten,
    "destroy": deploy_answers.Destruction,
    "init": answers.StarterWritten,
    "plan": DryRun,
    "gpus": answers.GpuTypes,
    "launch": answers.Started,
    "launch --watch": RunStatus,
    "status": RunStatus,
    "status --watch": RunStatus,
    "list": answers.Runs,
    "list --html": answers.RunsPageWritten,
    "logs": LogLine,
    "events": answers.EventLog,
    "cancel": Cancellation,
    "scale": Scaled,
    "continue": answers.Started,
    "continue --watch": RunStatus,
    "result": Result,
    "model": FetchedModel,
    "report": answers.PageWritten,
    "ui": answers.PageServed,
    "compare": Comparison,
    "deadletters list": DeadLetters,
    "deadletters replay": Replay,
    "deadletters drop": Dropped,
    "recipe list": RecipeCatalog,
    "recipe show": RecipeTemplate,
    "recipe resolve": recipe_answers.RecipeResolved,
    "recipe diff": recipe_answers.RecipesCompared,
    "recipe validate": recipe_answers.RecipesChecked,
    "policy": answers.UserPolicy,
    "verify": Verification,
    "local up": local_answers.CloudUp,
    "local status": local_answers.CloudUp,
    "local env": local_answers.CloudVariables,
    "local down": local_answers.CloudDown,
    "local links": LinkList,
    "faults list": local_answers.FaultList,
    "faults clear": local_answers.FaultsCleared,
}
"""What each command prints with --json."""

PLACED_FAULT = local_answers.FaultList
"""What every other command of `muster faults` prints: the fault that it has added."""

PASSES_ON = "local exec"
"""Prints the output of the program that it runs."""

# Options with which a command prints another document.
_OTHER_ANSWER = ("--watch", "--html")
# Described once for all commands.
_COMMON = {"--help", "--json", "--stack", "--profile", "--region"}
_COLUMNS = ["| | value | default | meaning |", "|---|---|---|---|"]
# Answers that are printed several times, one to a line.
_LINES = {"launch --watch": "status", "status --watch": "status", "continue --watch": "status", "logs": "line"}

_HEAD = """# Commands

*Generated from the commands and the models of their output by `python -m docs.generate`; a test checks that it is up to
date.*

[running.md](running.md) explains how to use the commands. The text that they print for people may change between
versions. Exit codes, and the names and meanings of the fields of [JSON answers](json.md), do not change. A later
version may add fields.

| command | option | meaning |
|---|---|---|
| `muster` | `--version` | print the installed version |
| all | `--help` | print the arguments and options |
| all except `local exec` | `--json` | print JSON |
| all that use a stack | `--stack` | the CloudFormation stack; default: `MUSTER_STACK`, `Muster`, then the only one |
| | `--profile` | the AWS profile; default: the AWS CLI's |
| | `--region` | the AWS region; default: `AWS_REGION`, then the AWS CLI's |
| `local …`, `faults …` | `--state` | the folder with the state of the embedded cloud; default: `.muster` |

## Exit codes

{codes}

Input is checked before any call to AWS. An error is one line on standard error that begins with `muster: `. If a
spec is invalid, one line for each problem follows. An invalid command line is reported in a box.

## With --json

A command prints one JSON document on one line of standard output. With `--watch`, it prints one line whenever the
status changes. `logs` prints one line for each line that a replica wrote. Every field is always present; a value
that is not known is null. Times are ISO 8601 in UTC, such as `2026-11-21T09:45:00.000Z`.
[json.md](json.md) describes each document, and [commands.schema.json](commands.schema.json) does so as JSON Schema.

If a command fails, the document is a [Failed](json.md#failed), and the text for people is still printed on standard
error. A failed run is not an error of the command: its status is printed as usual, and the exit code is 1.

## In a terminal

If standard error is a terminal, a command shows there what it is waiting for. `NO_COLOR=1` turns colours off.
Ctrl-C ends `--watch`, `logs -f` and `ui`; the run continues.

`muster --install-completion` installs completion of commands, options and run names for bash, zsh or fish, and in
`muster recipe` of the paths and placeholders of recipes on this machine. `--show-completion` prints the script that
would be installed. To complete the name of a run, the shell lists the
runs of the stack with your credentials. If this fails or takes more than a few seconds, nothing is completed.
"""


_ANSWERS_HEAD = """# JSON answers

*Generated from the models of the commands' output by `python -m docs.generate`; a test checks that it is up to date.*

[Commands](commands.md) says which command prints which of these with `--json`.
"""


def commands_reference() -> str:
    """The text of docs/commands.md."""
    codes = "\n".join(["| code | meaning |", "|---|---|", *(f"| {int(c)} | {text} |" for c, text in MEANINGS.items())])
    parts = [_HEAD.format(codes=codes)]
    parts += [_command(path, command) for path, command in commands()]
    return "\n".join(parts)


def answers_reference() -> str:
    """The text of docs/json.md."""
    return "\n".join([_ANSWERS_HEAD, *(_answer(model) for model in _models())])


def commands_schema() -> str:
    """The text of docs/commands.schema.json."""
    _, schema = models_json_schema(
        [(model, "serialization") for model in _models() if issubclass(model, BaseModel)],
        title="What the commands of muster print with --json",
        description="Generated by `python -m docs.generate`; docs/commands.md says which command prints what.",
    )
    return json.dumps({"$schema": SCHEMA_URL, **schema}, indent=1, ensure_ascii=False) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words, in the order of --help; the commands of groups come last."""
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
    options = [param for param in command.params if param not in arguments]
    rows = [_row(param) for param in (*arguments, *options) if not param.hidden and not _is_common(param)]
    table = [*_COLUMNS, *rows, ""] if rows else []
    return "\n".join([f"## muster {path}\n", f"{_sentence(command.help)}\n", f"`{usage}`\n", *table, _prints(path)])


def _is_common(param: Any) -> bool:
    if "--region" in param.opts:
        # The --region of `local up` is the region that the embedded cloud emulates.
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
    if default is None or default is False or default in ((), []):
        return "–"
    if default is True:
        return f"`{param.opts[0]}`"
    return f"`{default}`"


def _prints(path: str) -> str:
    if path == PASSES_ON:
        return "Has no `--json`: it prints the output of the program, and ends with the exit code of the program.\n"
    others = [
        f"; with `{option}` {_one(f'{path} {option}')}" for option in _OTHER_ANSWER if f"{path} {option}" in ANSWERS
    ]
    return f"With `--json`: {_one(path)}{''.join(others)}.\n"


def _one(path: str) -> str:
    name = answer_of(path).__name__
    link = f"[{name}](json.md#{name.lower()})"
    return f"a {link} for each {_LINES[path]}" if path in _LINES else f"one {link}"


def _models() -> list[type]:
    """The answers and the models inside them, each once, in order of first use."""
    pending: list[type] = [answers.Failed, *ANSWERS.values()]
    found: dict[str, type] = {}
    while pending:
        model = pending.pop(0)
        if model.__name__ in found:
            continue
        found[model.__name__] = model
        pending[:0] = [inner for _, annotation, _ in _fields(model) for inner in _inner(annotation)]
    return list(found.values())


def _fields(model: type) -> Iterator[tuple[str, Any, str]]:
    """The name, the annotation and the meaning of each field of a document or a dataclass."""
    if issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            yield name, field.annotation, field.description or ""
    else:
        for name, annotation in typing.get_type_hints(model).items():
            yield name, annotation, ""


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def _inner(annotation: Any) -> Iterator[type]:
    if _is_model(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _inner(argument)


def _answer(model: type) -> str:
    first = (model.__doc__ or "").splitlines()[0]
    rows = [f"| `{name}` | {_type(annotation)} | {meaning} |" for name, annotation, meaning in _fields(model)]
    table = "\n".join(["| field | value | meaning |", "|---|---|---|", *rows])
    return f"## {model.__name__}\n\n{first}\n\n{table}\n"


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
    if _is_model(annotation):
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
        datetime: "text",
        Timestamp: "time (ISO 8601 in UTC)",
        JsonValue: "JSON value",
    }
    return words[annotation]
