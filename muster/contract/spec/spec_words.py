"""What the spec's model knows of a place in a document: the section's fields, and the words for its limits."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from muster.contract.document import Document
from muster.contract.spec.spec import Spec
from muster.contract.training.values import Says

KEY = "[key]"  # pydantic's mark behind the key of a mapping that is itself at fault


def says(location: Sequence[int | str]) -> Says:
    """The words for the value at `location`; empty ones where the model has none."""
    *_, metadata = (metadata for _, metadata in _steps(location))
    return next((item for item in metadata if isinstance(item, Says)), Says())


def section(location: Sequence[int | str]) -> type[BaseModel] | None:
    """The model of the mapping in which the last part of `location` stands; None where any key may stand."""
    *_, (annotation, _) = _steps(location[:-1])
    return annotation if isinstance(annotation, type) and issubclass(annotation, Document) else None


def _steps(location: Sequence[int | str]) -> Iterator[tuple[Any, list[Any]]]:
    """Annotation and metadata of every step of the way, the whole spec first; it ends where the model knows no more."""
    annotation: Any = Spec
    yield annotation, []
    for index, part in enumerate(location):
        if part == KEY:
            return
        metadata: list[Any] = []
        origin, arguments = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(str(part))
            annotation, metadata = (field.annotation, field.metadata) if field else (None, [])
        elif origin is dict:
            annotation = arguments[0 if list(location[index + 1 : index + 2]) == [KEY] else 1]
        else:
            annotation = arguments[0] if origin is list else None
        annotation, inner = _bare(annotation)
        yield annotation, [*metadata, *inner]


def _bare(annotation: Any) -> tuple[Any, list[Any]]:
    """The annotation without None and without what it is annotated with, which comes beside it."""
    metadata: list[Any] = []
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is typing.Annotated:
            annotation, metadata = arguments[0], [*arguments[1:], *metadata]
        elif origin in {typing.Union, types.UnionType}:
            annotation = next(argument for argument in arguments if argument is not types.NoneType)
        else:
            return annotation, metadata
