"""What a model says about a place in its document: the section's fields, and the words for a value's limits."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from muster.contract.document import written_fields
from muster.contract.training.values import Wording

KEY = "[key]"
"""pydantic adds this part to a location whose fault is the key of a mapping."""


def wording_at(location: Sequence[int | str], model: type[BaseModel]) -> Wording:
    """The words for the value at `location` in a document of `model`; empty ones where the model has none."""
    *_, metadata = (metadata for _, metadata in _steps(location, model))
    return next((item for item in metadata if isinstance(item, Wording)), Wording())


def section_at(location: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    """The model of the mapping that holds the last part of `location`; None where the mapping may hold any key."""
    *_, (annotation, _) = _steps(location[:-1], model)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


# An annotation can be a type, a union, a generic alias or None: typing has no name for all of them.
def _steps(location: Sequence[int | str], model: type[BaseModel]) -> Iterator[tuple[Any, list[object]]]:
    """Annotation and metadata of every step down to `location`, the document first; it ends where the model ends."""
    annotation: Any = model
    yield annotation, []
    for index, part in enumerate(location):
        if part == KEY:
            return
        metadata: list[object] = []
        origin, arguments = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = written_fields(annotation).get(str(part))
            annotation, metadata = (field.annotation, field.metadata) if field else (None, [])
        elif origin is dict:
            annotation = arguments[0 if list(location[index + 1 : index + 2]) == [KEY] else 1]
        else:
            annotation = arguments[0] if origin is list else None
        annotation, inner = _bare(annotation)
        yield annotation, [*metadata, *inner]


def _bare(annotation: Any) -> tuple[Any, list[object]]:
    """The annotation without None and without its metadata, and the metadata."""
    metadata: list[object] = []
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is typing.Annotated:
            annotation, metadata = arguments[0], [*arguments[1:], *metadata]
        elif origin in {typing.Union, types.UnionType}:
            annotation = next(argument for argument in arguments if argument is not types.NoneType)
        else:
            return annotation, metadata
