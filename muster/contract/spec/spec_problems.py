"""The errors that pydantic finds in a user's document, most often a spec, as problems in the user's own terms."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import written_fields
from muster.contract.errors import PROBLEMS_SHOWN, Problem, StatedProblem
from muster.contract.spec.consistency import InconsistentSpecError
from muster.contract.spec.private_values import is_private, kind_of, shown, without_value
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec
from muster.contract.text import shortened
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.hints import cluster_hint, hint
from muster.contract.training.values import Wording

if typing.TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KEY = "[key]"
"""pydantic adds this part to a location whose fault is the key of a mapping."""
_PARTS_SHOWN = 8  # of a nested field: the full path to a value may be longer than any message
_PART_SHOWN = 64
# A section with more fields is not listed in an error.
_FIELDS_LISTED = 16

_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a string, in quotes",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
}
# Kind of error -> the limit's name in pydantic's context, its wording, what to do.
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {:,}", "raise it"),
    "greater_than": ("gt", "more than {:,}", "raise it"),
    "less_than_equal": ("le", "at most {:,}", "lower it"),
    "string_too_long": ("max_length", "at most {:,} characters", "remove {:,}"),
    "string_too_short": ("min_length", "at least {:,} characters", "write the whole value, or leave the field out"),
    "too_long": ("max_length", "at most {:,} entries", "remove {:,}"),
    "too_short": ("min_length", "at least {:,} entries", "add one, or leave the field out"),
}


def problems_of(error: ValidationError, model: type[BaseModel] = Spec) -> list[Problem]:
    """Every problem of a document that pydantic refused as a `model`, in the document's order.

    Those that an error does not show are counted only: finding the nearest known field takes time.
    """
    items = error.errors(include_url=False)
    found = [problem for item in items[:PROBLEMS_SHOWN] for problem in _problems(item, model)]
    return [*found, *(StatedProblem("the spec", "not shown", "") for _ in items[PROBLEMS_SHOWN:])]


def field_name(parts: Iterable[object]) -> str:
    """The path to a value, as errors name it: of a deeply nested one its beginning, of a long name too."""
    texts: list[str] = []
    for part in islice(parts, _PARTS_SHOWN):
        text = without_value(str(part)) if is_private(texts) else str(part)
        texts.append(shortened(text, _PART_SHOWN))
    return ".".join(texts)


def _problems(item: ErrorDetails, model: type[BaseModel]) -> list[Problem]:
    context = item.get("ctx", {})
    error = context.get("error")
    if isinstance(error, InconsistentSpecError):
        return error.problems
    kind, location, found = item["type"], item["loc"], item["input"]
    parts = [str(part.value if isinstance(part, FailureClass) else part) for part in location if part != _KEY]
    field = field_name(parts) or "the spec"
    if kind == "extra_forbidden":
        return [StatedProblem(field, "unknown field", _suggestion(location, model))]
    if kind == "missing":
        return [StatedProblem(field, "missing", "it is required")]
    wording = _wording_at(location, model)
    words = shown(found)
    if is_private(location):
        is_name = location[-1] == _KEY and isinstance(found, str)
        words = shown(without_value(found)) if is_name else f"{kind_of(found)} (not shown)"
    if kind in _BOUNDS:
        return [_bound(item, field, words, wording)]
    if kind == "string_pattern_mismatch":
        allowed = f"allowed: {wording.allowed}" if wording.allowed else ""
        return [Problem(field, words, wording.remedy or "correct it", allowed)]
    return [Problem(field, words, _remedy(kind, context))]


def _remedy(kind: str, context: Mapping[str, object]) -> str:
    if kind in _TYPES:
        return f"write {_TYPES[kind]}"
    if kind in {"enum", "literal_error"}:
        return "choose one of " + str(context["expected"]).replace("'", "").replace(" or ", ", ")
    if kind == "is_instance_of":  # a key of `reruns`, whose type has more members than have a budget
        return f"choose one of {', '.join(DEFAULT_BUDGETS)}"
    return "it cannot be stored as JSON" if "json" in kind else f"it is not allowed ({kind})"


def _bound(item: ErrorDetails, field: str, words: str, wording: Wording) -> Problem:
    kind, found = item["type"], item["input"]
    name, allowed, remedy = _BOUNDS[kind]
    limit = item["ctx"][name]
    value = f"{len(found):,} entries" if kind == "too_long" else words
    if kind in {"too_long", "string_too_long"}:
        remedy = remedy.format(len(found) - limit)
    return Problem(field, value, wording.remedy or remedy, _singular(allowed.format(limit)))


def _singular(text: str) -> str:
    """`at least 1 entries` -> `at least 1 entry`."""
    return re.sub(r" 1 characters$", " 1 character", re.sub(r" 1 entries$", " 1 entry", text))


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that a misspelled one most likely stands for, if any is like it."""
    near = difflib.get_close_matches(name[:_PART_SHOWN], known, n=1, cutoff=0.5)
    return near[0] if near else None


def _suggestion(location: Sequence[int | str], model: type[BaseModel]) -> str:
    section = _section_at(location, model) or model
    name, known = str(location[-1])[:_PART_SHOWN], list(written_fields(section))
    if model is Spec and (known_elsewhere := cluster_hint(name) if section is HyperPod else hint(name)) is not None:
        return known_elsewhere
    near = nearest(name, known)
    if near is not None:
        return f"did you mean {near}?"
    if len(known) > _FIELDS_LISTED:
        return (
            "`muster init - --every-field` prints a spec with every known field"
            if model is Spec
            else "see the documentation"
        )
    return "the known fields are " + ", ".join(known)


def _wording_at(location: Sequence[int | str], model: type[BaseModel]) -> Wording:
    """The words for the value at `location` in a document of `model`; empty ones where the model has none."""
    *_, metadata = (metadata for _, metadata in _steps(location, model))
    return next((item for item in metadata if isinstance(item, Wording)), Wording())


def _section_at(location: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    """The model of the mapping that holds the last part of `location`; None where the mapping may hold any key."""
    *_, (annotation, _) = _steps(location[:-1], model)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


# An annotation can be a type, a union, a generic alias or None: typing has no name for all of them.
def _steps(location: Sequence[int | str], model: type[BaseModel]) -> Iterator[tuple[Any, list[object]]]:
    """Annotation and metadata of every step down to `location`, the document first; it ends where the model ends."""
    annotation: Any = model
    yield annotation, []
    for index, part in enumerate(location):
        if part == _KEY:
            return
        metadata: list[object] = []
        origin, arguments = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = written_fields(annotation).get(str(part))
            annotation, metadata = (field.annotation, field.metadata) if field else (None, [])
        elif origin is dict:
            annotation = arguments[0 if list(location[index + 1 : index + 2]) == [_KEY] else 1]
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
