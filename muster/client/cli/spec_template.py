"""A spec to start with: every field with its description and default, most of them commented out."""

from __future__ import annotations

import json
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from muster.contract.document import Document
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

_WIDTH = 100
_HEAD = """\
## A run of Muster. Commented lines show each field's default, or nothing where there is none.
## Check it with `muster plan {file}`, start it with `muster launch {file} --watch`.
"""


def spec_template(file: str, trainer: str) -> str:
    """The text of a spec for `file`; `trainer` names the function that trains.

    Raises:
        SpecError: `trainer` is not written as module:function.
    """
    # The fields that are not commented out: the shortest spec that can be run.
    first = {"replicas": 4, "trainer": trainer}
    parse_spec(first)
    fields = Spec.model_fields
    lines = [_HEAD.format(file=file)]
    # The run's own fields before those of its jobs.
    for name in dict.fromkeys([*first, *Spec.__annotations__, *fields]):
        lines += textwrap.wrap(fields[name].description or "", _WIDTH, initial_indent="## ", subsequent_indent="## ")
        lines += [f"{name}: {first[name]}"] if name in first else _commented(name, fields[name])
        lines.append("")
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
    return next((item for item in choices if isinstance(item, type) and issubclass(item, Document)), None)


def _default(field: FieldInfo) -> str:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return "" if default is None or isinstance(default, Document) else json.dumps(default)
