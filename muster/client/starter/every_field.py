"""Every field of a spec with its description and default, commented out."""

from __future__ import annotations

import json
import textwrap
import types
import typing
from collections.abc import Collection, Iterator
from typing import get_args, get_origin

from pydantic.fields import FieldInfo

from muster.contract.document import Document, written_fields
from muster.contract.spec.open_spec import OpenRecipes
from muster.contract.spec.recipe_reference import RecipeReference
from muster.contract.spec.spec import Spec
from muster.options import offers

_WIDTH = 100


def every_field(written: Collection[str]) -> str:
    """The fields that are not among those `written`, the run's own before those of its jobs."""
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
