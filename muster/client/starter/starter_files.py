"""The files that `muster init` writes, by name. Pure but for the templates, which are part of the package."""

from __future__ import annotations

import json
import textwrap
import types
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from muster.client.starter.frameworks import CORE, PYTORCH, Kind, all_starters
from muster.client.starter.own_code import OwnCode
from muster.contract.document import Document, written_fields
from muster.contract.spec.open_spec import OpenRecipes
from muster.contract.spec.recipe_reference import RecipeReference
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.options import offers

SPEC_FILE = "run.yaml"
_MODULE = "training"
TRAINING_FILE = f"{_MODULE}.py"
PROGRAM_FILE = "program.py"
_WIDTH = 100  # of the description of a field
_LINE_MAX = 2**31 - 1  # of text in quotes, which is never folded


@dataclass(frozen=True)
class Wish:
    """What a user chose."""

    framework: str = PYTORCH
    kind: Kind = Kind.FUNCTION
    data: str | None = None
    replicas: int = 4
    own: OwnCode | None = None
    every_field: bool = False


def starter_files(wish: Wish) -> dict[str, str]:
    """The text of each file; the spec comes first.

    Raises:
        SpecError: the number of replicas or the prefix of the data is none of a spec.
    """
    lines = list(_spec_lines(wish))
    spec = "\n".join(lines) + "\n"
    if wish.every_field:
        # What is written already is not written again.
        written = {line.removeprefix("# ").partition(":")[0] for line in lines}
        spec = f"{spec}\n{_every_field(written)}"
    made = {SPEC_FILE: spec}
    if wish.own is None:
        made |= _code(wish)
    return made


def _code(wish: Wish) -> dict[str, str]:
    if wish.kind is Kind.SCRIPT:
        return {PROGRAM_FILE: _template(CORE.package, "own_program.py")}
    starter, package = all_starters()[wish.framework]
    made = {TRAINING_FILE: _template(package, f"{wish.framework}_training.py")}
    if starter.requirements:
        made["requirements.txt"] = "".join(f"{line}\n" for line in starter.requirements)
    return made


def _template(package: str, name: str) -> str:
    return files(package).joinpath("templates", name).read_text(encoding="utf-8")


def _spec_lines(wish: Wish) -> Iterator[str]:
    channel = [] if wish.data is None else [_channel(wish.data)]
    parse_spec({"replicas": wish.replicas, "trainer": "module:function", "input_data_config": channel})
    yield "# `muster plan` checks this file, `muster launch --watch` starts the run."
    yield "# `muster init - --every-field` explains every field."
    yield f"replicas: {wish.replicas}"
    yield from _program(wish)
    yield "source_dir: .   # this folder is packed for the replicas, and its requirements.txt is installed there"
    if wish.data is not None:
        yield "input_data_config:"
        yield "  - channel_name: train"
        yield "    data_source:"
        yield "      s3_data_source:"
        yield f"        s3_uri: {_quoted(wish.data)}"
    yield "max_runtime_seconds: 3600"
    yield "# instance_type: ml.g5.2xlarge   # default: the stack's"
    yield "# image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1   # default: the stack's"
    yield "# spot: true                     # cheaper; an interrupted replica is restarted"
    yield "# max_wait_seconds: 7200         # with spot: for the wait and the training together"


def _program(wish: Wish) -> Iterator[str]:
    own = wish.own
    if own is not None and own.trainer is None:
        yield f"entrypoint: [python, {_quoted(own.script or '')}]"
        yield '# arguments: [--rate, "0.1"]'
        if own.hook is not None:
            yield f"hook: {own.hook}   # its Trainer gets Muster's callback, and the replicas train one model"
            yield from ("kwargs:", "  sync_every: 500   # optimizer steps between two exchanges")
    elif own is None and wish.kind is Kind.SCRIPT:
        yield f"entrypoint: [python, {PROGRAM_FILE}]"
        yield 'arguments: [--steps, "200"]'
    else:
        yield f"trainer: {own.trainer if own is not None else f'{_MODULE}:train'}"
        starter = [f"{name}: {value}" for name, value in all_starters()[wish.framework][0].kwargs.items()]
        lines = starter if own is None else own.kwargs
        needed = any(not line.startswith("#") for line in lines)
        yield from ["kwargs:" if needed else "# kwargs:"] if lines else []
        yield from (f"  {line}" if needed else f"#   {line.removeprefix('# ')}" for line in lines)


def _quoted(text: str) -> str:
    """A line of text that YAML reads as it is, whatever it holds."""
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=_LINE_MAX)).strip()


def _channel(uri: str) -> dict[str, object]:
    return {"channel_name": "train", "data_source": {"s3_data_source": {"s3_uri": uri}}}


def _every_field(written: Collection[str]) -> str:
    """The fields that are not among those `written`, with description and default: the run's own before its jobs'."""
    inherited = {name for base in Spec.__bases__ for name in written_fields(base)}
    lines: list[str] = []
    for name, field in sorted(written_fields(Spec).items(), key=lambda item: item[0] in inherited):
        if name in written:
            continue
        lines += textwrap.wrap(field.description or "", _WIDTH, initial_indent="## ", subsequent_indent="## ")
        lines += [*_commented(name, field), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _commented(name: str, field: FieldInfo) -> Iterator[str]:
    section = _section(field.annotation)
    if section is None:
        yield f"# {name}: {_default(field)}".rstrip()
        return
    yield f"# {name}:"
    for inner, inner_field in section.model_fields.items():
        yield f"#   {inner}: {_default(inner_field)}".rstrip()


def _section(annotation: object) -> type[Document] | None:
    """The section that a field holds, if any; not a list or a mapping of sections."""
    choices = get_args(annotation) if get_origin(annotation) in {types.UnionType, typing.Union} else (annotation,)
    found = next((item for item in choices if isinstance(item, type) and issubclass(item, Document)), None)
    if found is RecipeReference:
        return next((one.form() for one in offers("contract.open_recipes", OpenRecipes)), found)
    return found


def _default(field: FieldInfo) -> str:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return "" if default is None or isinstance(default, Document) else json.dumps(default)
