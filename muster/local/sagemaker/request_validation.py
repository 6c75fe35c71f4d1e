"""Validation of requests by botocore's model of the service, with all violations at once.

botocore's client checks types and minimum lengths only; the service checks the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import botocore.session
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from muster.local.sagemaker.service_errors import invalid

# Java's character classes in the brackets of the model's patterns, which `re` does not have.
_JAVA_CLASSES = {r"\p{L}\p{Z}\p{N}_": r"\w\s", r"\p{Alnum}": "a-zA-Z0-9"}
_INTEGERS = {"integer": 31, "long": 63}


@cache
def service_model(service: str = "sagemaker") -> ServiceModel:
    """botocore's model of a service."""
    return botocore.session.get_session().get_service_model(service)


def operation_model(name: str, service: str = "sagemaker") -> OperationModel:
    """The model of one operation."""
    return service_model(service).operation_model(name)


def members(operation: str) -> frozenset[str]:
    """Names of the members of an operation's answer."""
    shape = operation_model(operation).output_shape
    return frozenset(shape.members) if shape is not None else frozenset()


def violations(operation: str, request: object, service: str = "sagemaker") -> list[str]:
    """Every violation of the model by `request`, worded as by AWS."""
    shape = operation_model(operation, service).input_shape
    return list(_walk(shape, request, "")) if shape is not None else []


def refuse(found: list[str]) -> None:
    """Raise one ValidationException for all of `found`, if there are any.

    Raises:
        ServiceError: with every violation in one message.
    """
    if found:
        count = f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected: "
        raise invalid(count + "; ".join(found))


def constraint(value: object, path: str, rule: str) -> str:
    """One violation, worded as by AWS."""
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {rule}"


def _walk(shape: Shape, value: object, path: str) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        yield from _structure(shape, value, path)
    elif isinstance(shape, ListShape):
        yield from _list(shape, value, path)
    elif isinstance(shape, MapShape):
        yield from _map(shape, value, path)
    else:
        yield from _scalar(shape, value, path)


def _structure(shape: StructureShape, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield constraint(value, path, "Member must be a structure")
        return
    for name in shape.required_members:
        if value.get(name) is None:
            yield constraint(None, _join(path, name), "Member must not be null")
    for name, member in value.items():
        if name not in shape.members:
            yield constraint(member, _join(path, name), "Member must be one of the members of the operation")
        elif member is not None:
            yield from _walk(shape.members[name], member, _join(path, name))


def _list(shape: ListShape, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield constraint(value, path, "Member must be a list")
        return
    yield from (constraint(value, path, rule) for rule in _broken_bounds(shape, len(value), "length"))
    for index, member in enumerate(value, start=1):
        yield from _walk(shape.member, member, f"{path}.{index}.member")


def _map(shape: MapShape, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield constraint(value, path, "Member must be a map")
        return
    yield from (constraint(value, path, rule) for rule in _broken_bounds(shape, len(value), "length"))
    for key, member in value.items():
        for rule in _broken_rules(shape.key, key):
            yield constraint(key, path, f"Map keys must satisfy constraint: [{rule}]")
        if not isinstance(member, str):
            yield constraint(member, f"{path}.{key}", "Member must be a string")
            continue
        for rule in _broken_rules(shape.value, member):
            yield constraint(member, f"{path}.{key}", f"Map value must satisfy constraint: [{rule}]")


def _scalar(shape: Shape, value: object, path: str) -> Iterator[str]:
    kind = shape.type_name
    if kind == "string":
        if not isinstance(value, str):
            yield constraint(value, path, "Member must be a string")
            return
        for rule in _broken_rules(shape, value):
            yield constraint(value, path, rule)
    elif kind in _INTEGERS:
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >> _INTEGERS[kind]:
            yield constraint(value, path, f"Member must be of type {kind}")
            return
        yield from (constraint(value, path, rule) for rule in _broken_bounds(shape, value, "value"))
    elif kind == "boolean" and not isinstance(value, bool):
        yield constraint(value, path, "Member must be a boolean")
    elif kind in {"timestamp", "float", "double"} and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield constraint(value, path, "Member must be a number")


def _broken_bounds(shape: Shape, found: int, what: str) -> Iterator[str]:
    """The rules of a shape's least and greatest `what`, value or length, that the one that was found breaks."""
    if found < shape.metadata.get("min", found):
        yield f"Member must have {what} greater than or equal to {shape.metadata['min']}"
    if found > shape.metadata.get("max", found):
        yield f"Member must have {what} less than or equal to {shape.metadata['max']}"


def _broken_rules(shape: Shape, value: str) -> Iterator[str]:
    metadata = shape.metadata
    yield from _broken_bounds(shape, len(value), "length")
    if (pattern := metadata.get("pattern")) and not _compiled(pattern).fullmatch(value):
        yield f"Member must satisfy regular expression pattern: {pattern}"
    if (enum := metadata.get("enum")) and value not in enum:
        yield f"Member must satisfy enum value set: [{', '.join(enum)}]"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the model as Python reads it."""
    translated = pattern
    for java, python in _JAVA_CLASSES.items():
        translated = translated.replace(java, python)
    return re.compile(translated)


def _join(path: str, name: str) -> str:
    """The path of a member: AWS writes names with a small first letter."""
    lowered = name[:1].lower() + name[1:]
    return f"{path}.{lowered}" if path else lowered
